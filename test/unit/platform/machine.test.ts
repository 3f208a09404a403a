import { describe, expect, it, vi } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { GpuUsage } from '../../../src/platform/machine.ts';
import { standIn } from '../../support/nvidia-smi/stand-in.ts';

const H200 = 'GPU-6f2d41c8-9a07-5be3-8c14-d3a0b7e95f21';

function say(words: string): void {
  vi.stubEnv('NVIDIA_SMI_SAYS', words);
}

describe('the usage of GPUs', () => {
  it('is what nvidia-smi reports for the requested GPUs', async () => {
    say('one-h200-ecc');
    const usage = new GpuUsage(standIn);
    expect(await usage.measure([H200])).toEqual([{ util: 37, memoryUtil: 0 }]);
    expect(await usage.measure(['GPU-of-another-machine'])).toEqual([]);
    expect(await usage.measure([])).toEqual([]);
  });

  it('is read again only after two seconds', async () => {
    const clock = new ManualClock();
    const usage = new GpuUsage(standIn, clock);
    say('driver-error');
    expect(await usage.measure([H200])).toEqual([]);
    say('one-h200-ecc');
    expect(await usage.measure([H200])).toEqual([]);
    await clock.advance(2_001);
    expect(await usage.measure([H200])).toHaveLength(1);
  });
});
