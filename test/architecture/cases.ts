import { forbiddenImports, homelessPackages, importCycles, impureImports, unguardedDials } from './imports.ts'
import {
  badFileNames,
  defaultExports,
  emptyTypeNames,
  impureNames,
  longFiles,
  longFunctions,
  plainErrors,
  strayReveals,
  undocumentedExports,
} from './shape.ts'
import type { Tree } from './source.ts'

/** A rule of the architecture, with files that break it on purpose and files that do not. */
export interface Rule {
  readonly name: string
  readonly check: (tree: Tree) => string[]
  /** Files, each of which the rule has to complain about. */
  readonly wrong: Readonly<Record<string, string>>
  /** Files of which it must not. */
  readonly right?: Readonly<Record<string, string>>
}

const lines = (count: number, line = '  void 0'): string => `${line}\n`.repeat(count)

/** Every rule that holds for `src/`. */
export const rules: Rule[] = [
  {
    name: 'imports follow the table',
    check: forbiddenImports,
    wrong: {
      'core/a.ts': `import { b } from '../policy/b.ts'`,
      'policy/a.ts': `import type { B } from '../config/b.ts'`,
      'admin/a.ts': `import { b } from '../proxy/b.ts'`,
      'admin/routes/a.ts': `export * from '../../proxy/b.ts'`,
      'cli/a.ts': `const b = await import('../proxy/b.ts')`,
      'net/a.ts': `const worker = new Worker(new URL('../proxy/b.ts', import.meta.url))`,
      'http1/a.ts': 'const file = new URL(`../proxy/worker${extension}`, import.meta.url)',
      'tls/a.ts': `type B = import('../store/b.ts').B`,
      'store/a.ts': `const b = await import(name)`,
      'audit/a.ts': `import { b } from '../../test/b.ts'`,
      'extra/a.ts': `export {}`,
      'main.ts': `import { app } from './app.ts'`,
    },
    right: {
      'policy/a.ts': `import { b } from './b.ts'\nimport type { C } from '../core/c.ts'`,
      'app.ts': `import { b } from './proxy/b.ts'\nimport { log } from './logger.ts'`,
      'audit/a.ts': `const worker = new Worker(new URL('./sink-worker.ts', import.meta.url))`,
    },
  },
  {
    name: 'files do not import each other in a circle at run time',
    check: importCycles,
    wrong: {
      'core/a.ts': `import { b } from './b.ts'`,
      'core/b.ts': `export { c } from './c.ts'`,
      'core/c.ts': `import { a } from './a.ts'`,
    },
    right: { 'core/d.ts': `import type { E } from './e.ts'`, 'core/e.ts': `import { d } from './d.ts'` },
  },
  {
    name: 'packages stay in their homes',
    check: homelessPackages,
    wrong: {
      'cli/b.ts': `import { z } from 'zod'`,
      'identity/a.ts': `import { LRUCache } from 'lru-cache'`,
      'proxy/listener.ts': `import { createProxyServer } from 'http-proxy'`,
      'proxy/a.ts': `import pino from 'pino'`,
      'net/a.ts': `import { request } from 'undici'`,
      'cli/a.ts': `import { readFile } from 'fs'`,
      'broker/a.ts': `import { DatabaseSync } from 'node:sqlite'`,
      'core/a.ts': `import { describe } from 'vitest'`,
      'store/sqlite.ts': `import * as x509 from '@peculiar/x509'`,
    },
    right: {
      'config/schema.ts': `import { z } from 'zod'`,
      'logger.ts': `import { pino } from 'pino'`,
      'store/sqlite-schema.ts': `import { DatabaseSync } from 'node:sqlite'`,
      'proxy/upgrade.ts': `import { createProxyServer } from 'http-proxy'`,
    },
  },
  {
    name: 'pure files import nothing of the world',
    check: impureImports,
    wrong: {
      'policy/a.ts': `import { readFileSync } from 'node:fs'`,
      'handles/a.ts': `import { randomBytes } from 'node:crypto'`,
      'redact/a.ts': `import { connect, isIP } from 'node:net'`,
      'http1/a.ts': `import * as net from 'node:net'`,
      'policy/b.ts': `import { createHash } from 'node:crypto'`,
      'audit/chain.ts': `import { randomUUID } from 'node:crypto'`,
      'tls/client-hello.ts': `import { systemClock } from '../core/clock.ts'`,
    },
    right: {
      'policy/c.ts': `import { isIP } from 'node:net'`,
      'audit/sink.ts': `import { readFileSync } from 'node:fs'`,
      'redact/c.ts': `import type { Clock } from '../core/clock.ts'`,
    },
  },
  {
    name: 'pure files use no clock, no randomness and no process',
    check: impureNames,
    wrong: {
      'policy/a.ts': `export const now = (): number => Date.now()`,
      'handles/a.ts': `export const dice = Math.random`,
      'redact/a.ts': `export const env = process.env`,
      'http1/a.ts': `console.log('x')`,
      'audit/chain.ts': `setTimeout(() => {}, 1)`,
      'tls/client-hello.ts': `export const id = globalThis.crypto.randomUUID()`,
    },
    right: {
      'policy/b.ts': `export const x = { process: 1 }.process + request.fetch`,
      'proxy/b.ts': `export const now = (): number => Date.now()`,
    },
  },
  {
    name: 'only the listed files open a Secret',
    check: strayReveals,
    wrong: {
      'broker/a.ts': `send(credential.value.reveal())`,
      'proxy/head.ts': `const open = secret.reveal`,
      'admin/a.ts': `secret['reveal']()`,
      'audit/a.ts': `const { reveal } = secret`,
      'issuers/deep/a.ts': `secret.reveal()`,
    },
    right: {
      'proxy/swap.ts': `secret.reveal()`,
      'issuers/static.ts': `secret.reveal()`,
      'core/secret.ts': `class Secret { reveal(): string { return '' } }`,
    },
  },
  {
    name: 'nothing but the connector opens connections or resolves names in the data plane',
    check: unguardedDials,
    wrong: {
      'proxy/a.ts': `import { connect } from 'node:net'`,
      'issuers/a.ts': `await fetch(url)`,
      'admin/a.ts': `import http from 'node:http'\nhttp.request(options)`,
      'broker/a.ts': `import * as net from 'node:net'\nnet.createConnection(80)`,
      'identity/a.ts': `import { lookup } from 'node:dns/promises'`,
    },
    right: {
      'net/connector.ts': `import { connect } from 'node:net'`,
      'proxy/b.ts': `import { createServer } from 'node:net'\nimport type { Socket } from 'node:net'`,
      'proxy/c.ts': `import * as net from 'node:net'\nnet.createServer()`,
    },
  },
  {
    name: 'every error has a type',
    check: plainErrors,
    wrong: {
      'core/a.ts': `throw new Error('x')`,
      'proxy/a.ts': `reject(Error('x'))`,
    },
    right: { 'core/errors.ts': `class Refusal extends Error {}`, 'net/b.ts': `throw new TypeError('x')` },
  },
  {
    name: 'files stop at 300 lines',
    check: longFiles,
    wrong: { 'core/a.ts': lines(301, '// x') },
    right: { 'core/b.ts': lines(300, '// x') },
  },
  {
    name: 'functions stop at 60 lines',
    check: longFunctions,
    wrong: {
      'core/a.ts': `function a(): void {\n${lines(59)}}`,
      'core/b.ts': `export const b = {\n  c: () => {\n${lines(59)}  },\n}`,
    },
    right: { 'core/c.ts': `function c(): void {\n${lines(58)}}` },
  },
  {
    name: 'file names are kebab-case and say something',
    check: badFileNames,
    wrong: {
      'core/utils.ts': '',
      'proxy/session-manager.ts': '',
      'net/common/a.ts': '',
      'net/dialHost.ts': '',
      'net/dial_host.ts': '',
    },
    right: { 'net/http1-head.ts': '', 'core/information.ts': '' },
  },
  {
    name: 'names of exported types say something',
    check: emptyTypeNames,
    wrong: { 'core/a.ts': 'export class SessionManager {}', 'core/b.ts': 'export interface ProxyInfo {}' },
    right: { 'core/c.ts': 'interface RuleBase {}\nexport type Information = string' },
  },
  {
    name: 'exports have names',
    check: defaultExports,
    wrong: { 'core/a.ts': 'export default function a() {}', 'core/b.ts': 'const b = 1\nexport default b' },
    right: { 'core/c.ts': 'export const c = 1' },
  },
  {
    name: 'every exported declaration has a doc comment',
    check: undocumentedExports,
    wrong: {
      'core/a.ts': `/** File. */\n\nexport const x = 1\nexport function y(): void {}`,
      'core/b.ts': `// No doc comment.\nexport interface B {}`,
      'core/c.ts': `type C = string\nexport type { C }`,
      'core/d.ts': `/** Doc. */\nexport class D {}\nexport class E {}`,
    },
    right: {
      'core/e.ts': `/** Doc. */\nexport function f(a: string): void\nexport function f(a: number): void {}`,
      'core/f.ts': `const hidden = 1\nexport { g } from './g.ts'`,
    },
  },
]
