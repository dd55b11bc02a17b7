import { describe, expect, it } from 'vitest'
import type { Field } from '../../src/http1/fields.ts'
import { forwardedFields, permittedTrailers, returnedFields, writeHead } from '../../src/proxy/head.ts'

const names = (fields: readonly Field[]): string[] => fields.map(([name]) => name)

describe('fields that are passed on', () => {
  it('leaves out what belongs to one connection, and what speaks in the name of the broker', () => {
    const fields: Field[] = [
      ['Host', 'a'],
      ['Connection', 'keep-alive, X-Private'],
      ['X-Private', '1'],
      ['Keep-Alive', 'timeout=5'],
      ['Proxy-Authorization', 'Basic x'],
      ['Proxy-Connection', 'keep-alive'],
      ['TE', 'trailers'],
      ['Transfer-Encoding', 'chunked'],
      ['Content-Length', '5'],
      ['Upgrade', 'h2c'],
      ['Expect', '100-continue'],
      ['Via', '1.1 a'],
      ['Forwarded', 'for=10.0.0.5'],
      ['X-Forwarded-For', '10.0.0.5'],
      ['X-Real-IP', '10.0.0.5'],
      ['X-Agent-Id', 'a2'],
      ['X-HTTP-Method-Override', 'DELETE'],
      ['Accept', '*/*'],
      ['X-Twice', '1'],
      ['x-twice', '2'],
    ]
    expect(forwardedFields(fields, new Set())).toEqual([
      ['Accept', '*/*'],
      ['X-Twice', '1'],
      ['x-twice', '2'],
    ])
  })

  it('keeps the slot of a credential though the client nominates it for removal', () => {
    const fields: Field[] = [
      ['Connection', 'authorization, x-other'],
      ['Authorization', 'Bearer x'],
      ['X-Other', '1'],
    ]
    expect(names(forwardedFields(fields, new Set(['authorization'])))).toEqual(['Authorization'])
  })

  it('returns a response without its connection fields, and with both cookies', () => {
    const fields: Field[] = [
      ['Connection', 'close, X-Hop'],
      ['X-Hop', '1'],
      ['Keep-Alive', 'timeout=5'],
      ['Proxy-Authenticate', 'Basic'],
      ['Set-Cookie', 'a=1'],
      ['Set-Cookie', 'b=2'],
    ]
    expect(returnedFields(fields)).toEqual([
      ['Set-Cookie', 'a=1'],
      ['Set-Cookie', 'b=2'],
    ])
  })

  it.each([
    'Authorization',
    'Content-Length',
    'Host',
    'Transfer-Encoding',
    'Cookie',
    'Set-Cookie',
    'X-Api-Key',
    'x_api_key',
    'X-Forwarded-For',
    'X-HTTP-Method-Override',
    'Trailer',
  ])('drops %s from a trailer section', (name) => {
    expect(permittedTrailers([[name, 'x']])).toEqual([])
  })

  it('keeps other trailers', () => {
    expect(
      names(
        permittedTrailers([
          ['Grpc-Status', '0'],
          ['X-Checksum', 'a'],
        ]),
      ),
    ).toEqual(['Grpc-Status', 'X-Checksum'])
  })

  it('writes a head with its closing line', () => {
    expect(writeHead('GET / HTTP/1.1', [['A', 'b']])).toBe('GET / HTTP/1.1\r\nA: b\r\n\r\n')
  })
})
