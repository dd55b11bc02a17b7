import { describe, expect, it } from 'vitest'
import { connectionLimits } from '../../src/app/descriptors.ts'

const table = (
  most: string,
): string => `Limit                     Soft Limit           Hard Limit           Units
Max processes             60415                60415                processes
Max open files            ${most}                 1048576              files
`

describe('limits of connections', () => {
  it.each([
    ['256', 96, 48],
    ['1024', 480, 240],
    ['1048576', 10_000, 5_000],
    ['unlimited', 10_000, 5_000],
    ['16', 4, 2],
  ])(
    'leave descriptors to other sandboxes where %s files may be open',
    (most, connections, sandboxConnections) => {
      expect(connectionLimits(table(most))).toEqual({ connections, sandboxConnections })
    },
  )

  it('are the usual ones on a system that does not tell', () => {
    expect(connectionLimits('')).toEqual({ connections: 10_000, sandboxConnections: 5_000 })
  })
})
