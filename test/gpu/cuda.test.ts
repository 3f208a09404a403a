// Checks which devices native CUDA code sees in a pinned process. Python's ctypes calls the driver;
// without Python or the driver these tests are skipped.
import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { detectDevices } from '../../src/worker/gpu/detect.ts';
import { planDevices } from '../../src/worker/gpu/device-plan.ts';

const run = promisify(execFile);

/** Prints the UUID of each device that the driver lists, one per line. */
const SCRIPT = `
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
def check(code):
    if code: sys.exit('CUDA error %d' % code)
code = cuda.cuInit(0)
if code == 100: sys.exit(0)  # no device is visible
check(code)
count = ctypes.c_int()
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
# For a MIG instance cuDeviceGetUuid_v2 returns its own UUID, cuDeviceGetUuid that of its GPU.
read = getattr(cuda, 'cuDeviceGetUuid_v2', None) or cuda.cuDeviceGetUuid
for number in range(count.value):
    device = ctypes.c_int()
    check(cuda.cuDeviceGet(ctypes.byref(device), number))
    uuid = (ctypes.c_ubyte * 16)()
    check(read(uuid, device))
    print(bytes(uuid).hex())
`;

const canAsk =
  spawnSync('python3', ['-c', "import ctypes; ctypes.CDLL('libcuda.so.1')"]).status === 0;

describe.skipIf(!canAsk)('CUDA in a pinned process', () => {
  it('lists the devices of its set in order, and no others', async () => {
    const detection = await detectDevices({ searchPath: process.env['PATH'] ?? '' });
    const wish = { detection, choice: undefined, environment: {} };
    const hasParts = detection.devices.some(({ mig }) => mig);
    const widths = hasParts ? [1] : [1, 'all' as const];
    for (const perWorker of widths) {
      for (const { devices, environment } of planDevices({ ...wish, perWorker }).sets) {
        expect(await listVisible(environment)).toEqual(
          devices.map(({ uuid }) => uuid.replace(/^(?:GPU|MIG)-/, '').replaceAll('-', '')),
        );
      }
    }
  });

  it('lists no device if the worker runs on the CPU', async () => {
    const detection = await detectDevices({ searchPath: process.env['PATH'] ?? '' });
    const wish = { detection, choice: 'cpu', environment: {}, perWorker: 1 };
    const [set] = planDevices(wish).sets;
    expect(await listVisible(set?.environment ?? {})).toEqual([]);
  });
});

async function listVisible(environment: Readonly<Record<string, string | undefined>>) {
  const env = { ...process.env, ...environment };
  const { stdout } = await run('python3', ['-c', SCRIPT], { env });
  return stdout.split('\n').filter((line) => line !== '');
}
