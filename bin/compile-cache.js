import * as module from 'node:module'
import { join } from 'node:path'
import { packageDir } from './node24.js'

// Start-up is mostly reading TypeScript; where the folder cannot be written, nothing is cached and nothing is said.
module.enableCompileCache(join(packageDir, 'node_modules', '.cache', 'octroi'))
