// Path and answers of the stand-in for nvidia-smi. Tests put its folder first on the PATH of a
// process.
import { join } from 'node:path';

export const standInFolder = import.meta.dirname;
export const standIn = join(standInFolder, 'nvidia-smi');

export type Answer =
  /** One H200: healthy; with memory errors; too hot. */
  | 'one-h200'
  | 'one-h200-ecc'
  | 'one-h200-hot'
  /** Eight A100; one of them listed as lost; without it. */
  | 'eight-a100'
  | 'eight-a100-lost'
  | 'seven-a100'
  /** Two A100, the first in MIG mode: with four instances; with none. */
  | 'mig-a100'
  | 'mig-empty'
  /** Cards with an old driver, which report little. */
  | 'geforce'
  | 'tesla-v100';

/**
 * What is no report. `lost-beside`: seven A100 and a word about the eighth; `lost-alone`: these
 * seven only when they are asked for by their UUIDs.
 */
export type Failure =
  | 'driver-error'
  | 'version-mismatch'
  | 'no-library'
  | 'lost'
  | 'lost-alone'
  | 'lost-beside'
  | 'no-permission'
  | 'no-devices'
  | 'hang'
  | 'garbage'
  | 'empty'
  | 'truncated'
  | 'killed';

/** Returns the variables that make the stand-in give this answer. */
export function sayingOf(says: Answer | Failure): { NVIDIA_SMI_SAYS: string } {
  return { NVIDIA_SMI_SAYS: says };
}
