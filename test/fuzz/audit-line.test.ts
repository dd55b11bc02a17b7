import { appendLink, canonicalBody, genesis, linkLine, verifyChain } from '../../src/audit/chain.ts'
import type { AuditEvent } from '../../src/audit/event.ts'
import { fuzz, holds, same } from './fuzz.ts'

/** Text of every kind that a client can send: bytes as latin1, as UTF-8 and as UTF-16 with lone surrogates. */
const readings = ['latin1', 'utf8', 'utf16le'] as const

/** Events with hostile text in every field. */
fuzz({
  name: 'audit-line',
  inCi: 10_000,
  full: 1_000_000,
  maxBytes: 600,
  dictionary: [
    ...[
      '"',
      '\\',
      '\\"',
      '{"v":1',
      ',"seq":2',
      '"}',
      '\\u',
      '\r\n',
      '\n',
      '\0',
      '\x1b[2J',
      '\x7f',
      '\x85',
      '\x9b',
      ' ',
    ],
    ...[
      '\xe2\x80\xa8',
      '\xe2\x80\xae',
      '\xe2\x81\xa6',
      '\xef\xbb\xbf',
      '\xe2\x80\x8b',
      '\xf3\xa0\x81\x81',
      '\xd8\x1c',
      '\xc2\xad',
    ],
    ...['\xe1\xa0\x8e', '\xef\xbf\xb9', '\x3d\xd8', '\x00\xdc', '\x2e\x20', '=cmd', '__proto__', '<script>'],
  ],
  check(bytes, random) {
    const text = bytes.toString(random.pick(readings))
    const event: AuditEvent = {
      id: text.slice(0, 40),
      ts: random.below(2 ** 31),
      kind: 'exchange',
      sandbox: text,
      method: text.slice(0, 8),
      host: text.slice(-60),
      port: random.below(65_536),
      path: `/${text}`,
      verdict: 'deny',
      reason: text,
      registry: { ecosystem: text, package: text.slice(1) },
      artifacts: [text, text.slice(2)],
      note: text,
    }
    const seq = 1 + random.below(1_000_000)
    const link = appendLink(genesis, seq, event)
    const line = linkLine(genesis, link)
    const parsed = JSON.parse(line) as Record<string, unknown>
    const { v, prev, hash, ...rest } = parsed
    same([v, prev, hash], [1, genesis, link.hash], 'frame')
    const fields = Object.fromEntries(Object.entries(event).filter(([, value]) => value !== undefined))
    same(Object.entries(rest).toSorted(), Object.entries({ ...fields, seq }).toSorted(), 'what was written')
    // Nothing that ends a line, steers a terminal, turns or hides text: one row is one row, and all of it is seen.
    holds(
      !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u.test(line),
      `acting characters: ${JSON.stringify(line.match(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u))}`,
    )
    same(canonicalBody(seq, event), link.body, 'the same event, another line')
    same(verifyChain([link], { seq: seq - 1, hash: genesis }).ok, true, 'the chain of one')
    const at = random.below(link.body.length)
    const changed = `${link.body.slice(0, at)}${link.body[at] === '0' ? '1' : '0'}${link.body.slice(at + 1)}`
    same(
      verifyChain([{ ...link, body: changed }], { seq: seq - 1, hash: genesis }).ok,
      false,
      'a changed byte',
    )
    const isPlain = /^[\x20-\x7e]*$/.test(text)
    return `${isPlain ? 'taken' : 'refused'}:${/["\\]/.test(text)} ${text.isWellFormed()}`
  },
})
