import { afterAll, vi } from 'vitest';
import { standInFolder } from '../support/nvidia-smi/stand-in.ts';
import { describeDevices } from './devices.ts';

afterAll(() => vi.unstubAllEnvs());

for (const says of ['one-h200', 'eight-a100', 'mig-a100'] as const) {
  describeDevices(`a simulated machine (${says})`, () => {
    vi.stubEnv('NVIDIA_SMI_SAYS', says);
    return { searchPath: standInFolder };
  });
}
