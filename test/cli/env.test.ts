import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { registerEnv } from '../../src/cli/env.ts'
import type { EnvFacts } from '../../src/cli/env.ts'
import { runProgram } from '../../src/cli/program.ts'
import { OperatorError } from '../../src/core/errors.ts'
import { writeTrustFiles } from '../../src/sandbox/bundle.ts'
import { memoryIo } from '../helpers/memory-io.ts'
import { stateFolder } from '../helpers/state-folder.ts'

async function env(args: readonly string[], facts: Partial<EnvFacts> = {}, own: Record<string, string> = {}) {
  const trust = await writeTrustFiles({
    folder: join(stateFolder(), 'certs'),
    caPem: rootCertificates[0] ?? '',
  })
  const { io, out, err } = memoryIo({ env: own })
  const register = registerEnv({
    load(configPath, sandbox) {
      if (sandbox !== 'coder-1') return Promise.reject(new OperatorError(`no sandbox is called "${sandbox}"`))
      expect(configPath).toBe('/c.yaml')
      return Promise.resolve({
        proxy: { scheme: 'http', host: '127.0.0.1', port: 18080 },
        login: { user: 'coder-1', token: 'tok' },
        placeholders: [{ env: 'GITHUB_TOKEN', placeholder: 'ghp_octroi0123456789ABCDEFGHIJKLMN' }],
        trust,
        notes: [],
        ...facts,
      })
    },
  })
  const code = await runProgram(['--config', '/c.yaml', 'env', ...args], { io, groups: [register] })
  return { code, out: out.join('\n'), err: err.join('\n'), trust }
}

const json = async (
  args: readonly string[],
  facts: Partial<EnvFacts> = {},
  own: Record<string, string> = {},
) => {
  const result = await env(['--sandbox', 'coder-1', '--json', ...args], facts, own)
  return { ...result, env: JSON.parse(result.out) as Record<string, string> }
}

describe('octroi env', () => {
  it('prints lines for a shell unless told otherwise', async () => {
    const { code, out, trust } = await env(['--sandbox', 'coder-1'])
    expect(code).toBe(0)
    expect(out).toContain('export HTTPS_PROXY=http://coder-1:tok@127.0.0.1:18080\n')
    expect(out).toContain(`export SSL_CERT_FILE=${trust.bundle}\n`)
    expect(out).toContain('export GITHUB_TOKEN=ghp_octroi0123456789ABCDEFGHIJKLMN')
  })

  it('prints each format', async () => {
    expect(JSON.parse((await env(['--sandbox', 'coder-1', '--format', 'mcp'])).out)).toHaveProperty(
      'env.no_proxy',
    )
    expect((await env(['--sandbox', 'coder-1', '--format', 'docker'])).out).toContain(
      '\nNODE_USE_ENV_PROXY=1\n',
    )
    expect((await env(['--sandbox', 'coder-1', '--format', 'yaml'])).code).toBe(2)
  })

  it('names the broker as the sandbox sees it', async () => {
    const { env: set } = await json(['--proxy-host', 'broker.internal'])
    expect(set['HTTPS_PROXY']).toBe('http://coder-1:tok@broker.internal:18080')
    expect((await env(['--sandbox', 'coder-1', '--proxy-host', 'http://x:1'])).code).toBe(2)
  })

  it('prints a reachable address for a broker that listens on every one', async () => {
    const any = await json([], { proxy: { scheme: 'http', host: '0.0.0.0', port: 1 } })
    expect(any.env['HTTPS_PROXY']).toContain('@127.0.0.1:1')
    const six = await json([], { proxy: { scheme: 'https', host: '::', port: 1 } })
    expect(six.env['HTTPS_PROXY']).toBe('https://coder-1:tok@[::1]:1')
  })

  it('moves every path to where a container sees the folder, and gives apt a file that names it', async () => {
    const { env: set, trust } = await json(['--ca-path', '/certs'], {}, { JAVA_TOOL_OPTIONS: '-Xhost' })
    expect(set['SSL_CERT_FILE']).toBe('/certs/octroi-bundle.pem')
    expect(set['NODE_EXTRA_CA_CERTS']).toBe('/certs/octroi-ca.pem')
    expect(set['JAVA_TOOL_OPTIONS']).toContain('trustStore=/certs/octroi-bundle.jks')
    expect(set['JAVA_TOOL_OPTIONS']).not.toContain('-Xhost')
    expect(Object.values(set).filter((value) => value.includes(trust.folder))).toEqual([])
    const conf = join(trust.folder, (set['APT_CONFIG'] ?? '').replace('/certs/', ''))
    expect(await readFile(conf, 'utf8')).toBe('Acquire::https::CAInfo "/certs/octroi-bundle.pem";\n')
  })

  it('takes one PEM bundle for everything that reads PEM', async () => {
    const { env: set } = await json(['--ca-path', '/etc/octroi.pem'])
    expect([set['SSL_CERT_FILE'], set['NODE_EXTRA_CA_CERTS']]).toEqual(['/etc/octroi.pem', '/etc/octroi.pem'])
    expect(set).not.toHaveProperty('APT_CONFIG')
    expect((await env(['--sandbox', 'coder-1', '--ca-path', 'certs'])).code).toBe(2)
  })

  it('keeps notes off stdout, and says which sandbox is unknown', async () => {
    const noted = await env(['--sandbox', 'coder-1'], { notes: ['issued again'] })
    expect(noted.err).toBe('issued again')
    const unknown = await env(['--sandbox', 'other'])
    expect(unknown).toMatchObject({ code: 1, out: '', err: 'octroi: no sandbox is called "other"' })
  })
})
