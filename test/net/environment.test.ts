import { describe, expect, it } from 'vitest'
import { environmentNotes, environmentProblems } from '../../src/net/environment.ts'

describe('an environment', () => {
  it.each([
    {
      name: 'certificate checks off',
      env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
      says: 'NODE_TLS_REJECT_UNAUTHORIZED',
    },
    { name: 'a key log', env: { SSLKEYLOGFILE: '/tmp/keys' }, says: 'SSLKEYLOGFILE' },
    {
      name: 'a key log by flag',
      env: { NODE_OPTIONS: '--max-old-space-size=512 --tls-keylog=/tmp/keys' },
      says: '--tls-keylog',
    },
    {
      name: 'a key log by flag and blank',
      env: { NODE_OPTIONS: '--tls-keylog /tmp/keys' },
      says: '--tls-keylog',
    },
    { name: 'a quoted flag', env: { NODE_OPTIONS: '"--tls-keylog=/tmp/my keys"' }, says: '--tls-keylog' },
    {
      name: 'a flag with underscores',
      env: { NODE_OPTIONS: '--insecure_http_parser' },
      says: '--insecure-http-parser',
    },
    { name: 'old TLS', env: { NODE_OPTIONS: '--tls-min-v1.0' }, says: '--tls-min-v1.0' },
    { name: 'other ciphers', env: { NODE_OPTIONS: '--tls-cipher-list=ALL' }, says: '--tls-cipher-list' },
    { name: 'headers printed', env: { NODE_DEBUG: 'fs,HTTP' }, says: 'NODE_DEBUG' },
    { name: 'headers printed by a pattern', env: { NODE_DEBUG: 'ht*' }, says: 'NODE_DEBUG' },
  ])('with $name keeps the broker from starting, in one sentence', ({ env, says }) => {
    const problems = environmentProblems(env)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(says)
  })

  it('names every problem at once', () => {
    const env = {
      NODE_TLS_REJECT_UNAUTHORIZED: '0',
      SSLKEYLOGFILE: 'x',
      NODE_OPTIONS: '--tls-keylog=x --trace-tls',
    }
    expect(environmentProblems(env)).toHaveLength(4)
  })

  it('is judged with the command line of node', () => {
    expect(environmentProblems({}, ['--enable-source-maps', '--tls-keylog=/tmp/keys'])).toEqual([
      'the command line of node has --tls-keylog, which writes the keys of every TLS connection to a file: remove it',
    ])
  })

  it('without such settings is fine', () => {
    const env = {
      PATH: '/bin',
      NODE_TLS_REJECT_UNAUTHORIZED: '1',
      NODE_OPTIONS: '--max-old-space-size=512 --use-system-ca',
      NODE_DEBUG: 'fs,module',
      SSLKEYLOGFILE: '',
      NODE_EXTRA_CA_CERTS: '/etc/ca.pem',
    }
    expect(environmentProblems(env, ['--enable-source-maps'])).toEqual([])
  })
})

describe('the notes at start', () => {
  it('name what is ignored and where the system store is read from', () => {
    const notes = environmentNotes({
      NODE_EXTRA_CA_CERTS: '/etc/ca.pem',
      SSL_CERT_FILE: '/etc/roots.pem',
      HTTPS_PROXY: 'http://user:password@proxy.test',
      no_proxy: 'localhost',
    }).join('\n')
    expect(notes).toMatch(/NODE_EXTRA_CA_CERTS is ignored/)
    expect(notes).toMatch(/SSL_CERT_FILE is where/)
    expect(notes).toMatch(/HTTPS_PROXY, no_proxy: ignored/)
    expect(notes).not.toContain('password')
  })

  it('are none for a plain environment', () => {
    expect(environmentNotes({ PATH: '/bin' })).toEqual([])
  })
})
