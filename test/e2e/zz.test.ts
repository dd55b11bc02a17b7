import { it, expect } from 'vitest'
import { attackBench } from '../helpers/attack-bench.ts'
it('x', async () => {
  const bench = await attackBench({ limits: { handshakeMs: 2000 } })
  for (const how of ['destroy', 'end', 'wait']) {
    const t = Date.now()
    const mark = bench.mark()
    const c = await bench.tunnel('s1', 'free.good.test')
    if (how === 'wait') await new Promise((r) => setTimeout(r, 50))
    if (how === 'end') c.end(); else c.destroy()
    const e = await mark.decisions(1)
    console.log(how, Date.now() - t, JSON.stringify(e[0]))
  }
  await bench.stop()
})
