import js from '@eslint/js'
import { defineConfig, globalIgnores } from 'eslint/config'
import tseslint from 'typescript-eslint'

const plainError = {
  selector: 'NewExpression[callee.name="Error"]',
  message:
    'Throw a Refusal (request path), an OperatorError (operator must act) or a TypeError (caller bug).',
}
const calledError = { ...plainError, selector: 'CallExpression[callee.name="Error"]' }
const defaultExport = {
  selector: 'ExportDefaultDeclaration',
  message: 'Export by name, so that one thing has one name everywhere.',
}
// A second parser of host and port is how a check and a dial come to disagree.
const secondParser = [
  {
    selector: 'CallExpression[callee.property.name="split"][arguments.0.value=":"]',
    message: 'policy/destination.ts is the only parser of host and port.',
  },
  {
    selector: 'NewExpression[callee.name="URL"]',
    message: 'policy/destination.ts is the only parser of host and port; URL canonicalises behind our back.',
  },
]

export default defineConfig(
  globalIgnores(['node_modules/', 'dist/', 'data/', 'coverage/']),
  js.configs.recommended,
  tseslint.configs.recommended,
  {
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      // The compiler checks names (tsconfig.json) and unused bindings.
      'no-undef': 'off',
      '@typescript-eslint/no-unused-vars': 'off',
      eqeqeq: 'error',
      'no-console': 'error',
      'max-params': ['error', { max: 3 }],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'separate-type-imports' }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/return-await': ['error', 'error-handling-correctness-only'],
      '@typescript-eslint/switch-exhaustiveness-check': [
        'error',
        { considerDefaultExhaustiveForUnions: true, requireDefaultForNonUnion: false },
      ],
    },
  },
  {
    files: ['src/**/*.ts'],
    rules: {
      'max-lines': ['error', { max: 300, skipBlankLines: false, skipComments: false }],
      'max-lines-per-function': ['error', { max: 60, skipBlankLines: false, skipComments: false }],
      'no-restricted-syntax': ['error', plainError, calledError, defaultExport],
    },
  },
  {
    files: ['src/{policy,proxy,identity,net}/**/*.ts'],
    ignores: ['src/policy/destination.ts', 'src/policy/host-pattern.ts'],
    rules: { 'no-restricted-syntax': ['error', plainError, calledError, defaultExport, ...secondParser] },
  },
  {
    files: ['src/cli/**/*.ts', 'bin/**/*.js', 'scripts/**/*.js'],
    rules: { 'no-console': 'off' },
  },
  {
    files: ['bin/**/*.js', 'scripts/**/*.js'],
    rules: {
      'max-lines': ['error', { max: 300 }],
      'max-lines-per-function': ['error', { max: 60 }],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      // vitest's describe and it take callbacks that return promises where the types say void.
      '@typescript-eslint/no-misused-promises': 'off',
      // The rows of a table arrive as parameters, bytes are spelled in patterns, and seeds are printed.
      'max-params': 'off',
      'no-control-regex': 'off',
      'no-console': 'off',
    },
  },
  {
    files: ['**/*.mjs'],
    extends: [tseslint.configs.disableTypeChecked],
    rules: { 'no-console': 'off' },
  },
)
