import { describe, expect, it } from 'vitest'
import { createAttachments } from '../../src/app/attachments.ts'
import { manualClock } from '../helpers/manual-clock.ts'

function setup() {
  const clock = manualClock(0)
  const state = { isBusy: false, isIdle: false }
  const attachments = createAttachments({ clock, idleExitMs: 30_000, isBusy: () => state.isBusy })
  void attachments.idle.then(() => (state.isIdle = true))
  return {
    attachments,
    state,
    async pass(ms: number): Promise<boolean> {
      clock.advance(ms)
      await Promise.resolve()
      return state.isIdle
    },
  }
}

describe('attachments of a private broker', () => {
  it('end it when no run came in time', async () => {
    const { pass } = setup()
    expect(await pass(29_999)).toBe(false)
    expect(await pass(1)).toBe(true)
  })

  it('keep it for as long as there is a run, and count the time anew after the last', async () => {
    const { attachments, pass } = setup()
    const first = attachments.attach()
    const second = attachments.attach()
    expect(attachments.count).toBe(2)
    expect(await pass(3_600_000)).toBe(false)
    first?.()
    first?.()
    expect(attachments.count).toBe(1)
    expect(await pass(3_600_000)).toBe(false)
    second?.()
    expect(await pass(29_999)).toBe(false)
    attachments.attach()?.()
    expect(await pass(29_999)).toBe(false)
    expect(await pass(1)).toBe(true)
  })

  it('keep it while exchanges are in flight', async () => {
    const { state, pass } = setup()
    state.isBusy = true
    expect(await pass(30_000)).toBe(false)
    state.isBusy = false
    expect(await pass(30_000)).toBe(true)
  })

  it('take no run once it is about to end', async () => {
    const { attachments, pass } = setup()
    await pass(30_000)
    expect(attachments.attach()).toBeUndefined()
    expect(attachments.count).toBe(0)
  })

  it('hand over only while no run uses it', async () => {
    const { attachments, state, pass } = setup()
    const release = attachments.attach()
    expect(attachments.handOver()).toBe('in_use')
    release?.()
    state.isBusy = true
    expect(attachments.handOver()).toBe('in_use')
    state.isBusy = false
    expect(attachments.handOver()).toBe('stopping')
    expect(await pass(0)).toBe(true)
    expect(attachments.attach()).toBeUndefined()
  })
})

describe('attachments of any other broker', () => {
  it('never end it', async () => {
    const clock = manualClock(0)
    const attachments = createAttachments({ clock, idleExitMs: undefined, isBusy: () => false })
    let isIdle = false
    void attachments.idle.then(() => (isIdle = true))
    attachments.attach()?.()
    clock.advance(86_400_000)
    await Promise.resolve()
    expect([attachments.isPrivate, attachments.handOver(), isIdle]).toEqual([false, 'permanent', false])
  })
})
