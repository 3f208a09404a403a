// Runs the suite of test/conformance/devices.ts with this machine's nvidia-smi.
import { expect, it } from 'vitest';
import { findProgram } from '../../src/worker/gpu/program.ts';
import { describeDevices } from '../conformance/devices.ts';

const searchPath = process.env['PATH'] ?? '';

if ((await findProgram('nvidia-smi', searchPath)) === undefined) {
  it('needs nvidia-smi on the PATH', () => {
    expect.fail(
      'there is no nvidia-smi on the PATH: these tests need a machine with an NVIDIA GPU',
    );
  });
} else {
  describeDevices('this machine', () => ({ searchPath }));
}
