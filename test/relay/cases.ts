import type { RelayCase } from './case.ts'
import { fieldCases } from './field-cases.ts'
import { flowCases } from './flow-cases.ts'
import { interimCases } from './interim-cases.ts'
import { leavingCases } from './leaving-cases.ts'
import { messageCases } from './message-cases.ts'

/** The rows that a relay of plain requests owes; the four of upgrades are in `upgrade-cases.ts`. */
export const plainCases: readonly RelayCase[] = [
  ...leavingCases,
  ...interimCases,
  ...messageCases,
  ...flowCases,
  ...fieldCases,
]
