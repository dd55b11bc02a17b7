/** A command line of Octroi that a document shows. */
export interface Shown {
  readonly line: string
  /** Words after `octroi`, up to a pipe, a redirection or the command that `run` starts. */
  readonly words: readonly string[]
}

/** How a checkout and an installation call the program. */
const program = /(?:^|[\s(])(?:octroi|node (?:\S*\/)?bin\/octroi\.js) ((?:[^|;>)`#]|\\\))*)/g

/**
 * The command lines in code spans and code blocks. Of a `console` block only what is typed, behind `$ `, counts; blocks of
 * output and of other languages do not.
 */
export function commandsIn(page: string): Shown[] {
  return linesOf(page).flatMap((line) =>
    [...line.matchAll(program)].flatMap(([, text = '']) => {
      const words = text.trim().split(/\s+/)
      const end = words.indexOf('--')
      const own = end < 0 ? words : words.slice(0, end)
      return own[0] === undefined || own[0] === '' ? [] : [{ line: line.trim(), words: own }]
    }),
  )
}

function linesOf(page: string): string[] {
  const lines: string[] = []
  let language: string | undefined
  for (const line of page.split('\n')) {
    const fence = /^```(\w*)/.exec(line)
    if (fence !== null) language = language === undefined ? (fence[1] ?? '') : undefined
    else if (language === 'console') lines.push(...(line.startsWith('$ ') ? [line.slice(2)] : []))
    else if (language === 'sh' || language === '') lines.push(line)
    else if (language === undefined && line.startsWith('    ')) lines.push(line.trim())
    else if (language === undefined) lines.push(...spansOf(line))
  }
  return lines.filter((line) => !line.startsWith('alias '))
}

/** Code spans that are a command, not a text with the program's name in it. */
const spansOf = (line: string): string[] =>
  [...line.matchAll(/`([^`]+)`/g)]
    .map(([, span = '']) => span)
    .filter((span) => /^octroi |^node \S*bin\/octroi|\$\(octroi /.test(span))
