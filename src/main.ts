import { processIo } from './cli/process-io.ts'
import { runCli } from './cli/wiring.ts'

process.exitCode = await runCli(process.argv.slice(2), processIo())
