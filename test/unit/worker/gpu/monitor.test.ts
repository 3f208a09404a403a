// The monitor on a clock of the test's, fed with what the stand-in for nvidia-smi really printed.
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type FoundDevice, listNvidiaDevices } from '../../../../src/worker/gpu/detect.ts';
import { GpuMonitor } from '../../../../src/worker/gpu/monitor.ts';
import { readNvidiaSmi, type SmiReading } from '../../../../src/worker/gpu/nvidia-smi.ts';
import type { SmiReport } from '../../../../src/worker/gpu/nvidia-smi-report.ts';
import { type Answer, type Failure, standIn } from '../../../support/nvidia-smi/stand-in.ts';

const WORDS = [
  'one-h200',
  'one-h200-ecc',
  'one-h200-hot',
  'eight-a100',
  'eight-a100-lost',
  'seven-a100',
  'mig-a100',
  'mig-empty',
  'driver-error',
  'version-mismatch',
  'lost',
  'lost-beside',
] as const satisfies readonly (Answer | Failure)[];
type Word = (typeof WORDS)[number];

const answers = new Map<Word, SmiReading>();

beforeAll(async () => {
  for (const word of WORDS) {
    vi.stubEnv('NVIDIA_SMI_SAYS', word);
    answers.set(word, await readNvidiaSmi({ command: standIn }));
  }
  vi.unstubAllEnvs();
});

function answer(word: Word): SmiReading {
  const found = answers.get(word);
  if (!found) throw new Error(`${word} was not read`);
  return found;
}

function devicesOf(word: Word): FoundDevice[] {
  const found = answer(word);
  return found.kind === 'report' ? listNvidiaDevices(found.report) : [];
}

/** A monitor of the first word's devices; `says` is what it reads next. */
function watch(first: Word, options: { read?: () => Promise<SmiReading> } = {}) {
  const clock = new ManualClock();
  const scene = { says: first as Word, looks: 0 };
  const changes: string[] = [];
  const monitor = new GpuMonitor({
    devices: devicesOf(first),
    read:
      options.read ??
      (async () => {
        scene.looks++;
        return answer(scene.says);
      }),
    intervalMs: 10_000,
    policy: { probe: { baseMs: 30_000, maxMs: 60_000, jitter: 0 } },
    clock,
    onChange({ found, health }, before) {
      changes.push(`${found.device.uuid.slice(0, 12)} ${before.state.name} → ${health.state.name}`);
    },
    onReading: () => {},
  });
  return { clock, monitor, changes, scene };
}

function statesOf(monitor: GpuMonitor): string {
  return monitor.statuses.map(({ health }) => health.state.name[0]).join('');
}

/** A monitor whose looks give the report of the word, changed. */
function watchReport(word: Word, change: (report: SmiReport) => SmiReport) {
  const said = answer(word);
  if (said.kind !== 'report') throw new Error(`${word} is no report`);
  const reading = { ...said, report: change(said.report) };
  return watch(word, { read: async () => reading });
}

/** Each look waits until the test answers it. */
function watchSlowly(first: Word) {
  const clock = new ManualClock();
  const asked: { signal: AbortSignal; reply: (reading: SmiReading) => void }[] = [];
  const told: string[] = [];
  const monitor = new GpuMonitor({
    devices: devicesOf(first),
    read: (signal) => new Promise((reply) => asked.push({ signal, reply })),
    intervalMs: 10_000,
    clock,
    onChange: (status) => told.push(status.health.state.name),
    onReading: () => told.push('reading'),
  });
  return { clock, monitor, asked, told };
}

describe('a reading', () => {
  it('delays the next one if it takes longer than the interval', async () => {
    const { clock, monitor, asked } = watchSlowly('one-h200');
    monitor.start();
    await clock.advance(35_000);
    const beside = monitor.readNow();
    await clock.advance(5_000);
    expect(asked).toHaveLength(1);
    asked[0]?.reply(answer('one-h200'));
    await beside;
    await clock.advance(9_999);
    expect(asked).toHaveLength(1);
    await clock.advance(1);
    expect(asked).toHaveLength(2);
  });

  it('is aborted without a report if it is in progress when the monitor stops', async () => {
    const { clock, monitor, asked, told } = watchSlowly('one-h200');
    monitor.start();
    await clock.advance(0);
    monitor.stop();
    expect(asked[0]?.signal.aborted).toBe(true);
    asked[0]?.reply(answer('one-h200-ecc'));
    await clock.advance(60_000);
    expect(told).toEqual([]);
    expect(statesOf(monitor)).toBe('h');
    expect(asked).toHaveLength(1);
  });

  it.each([new Error('out of memory'), 'out of memory'])(
    'counts as failed if it rejects (%s)',
    async (error) => {
      const { monitor } = watch('one-h200', { read: () => Promise.reject(error) });
      await monitor.readNow();
      expect(monitor.statuses[0]?.health.state).toMatchObject({
        name: 'suspect',
        reason: expect.stringMatching(/in a row: out of memory$/),
      });
    },
  );

  it('marks missing values as not current', async () => {
    const { monitor, scene } = watch('one-h200');
    await monitor.readNow();
    expect(monitor.statuses[0]).toMatchObject({ isCurrent: true, temperatureC: 34 });
    scene.says = 'driver-error';
    await monitor.readNow();
    expect(monitor.statuses[0]).toMatchObject({ isCurrent: false, temperatureC: 34 });
  });
});

describe('a first reading', () => {
  it('is the baseline of later ones, and replaces the reading at the start', async () => {
    const clock = new ManualClock();
    let looks = 0;
    const monitor = new GpuMonitor({
      devices: devicesOf('one-h200'),
      first: answer('one-h200'),
      read: async () => {
        looks++;
        return answer('one-h200-ecc');
      },
      clock,
      onChange: () => {},
      onReading: () => {},
    });
    expect(monitor.statuses[0]).toMatchObject({ isCurrent: true, temperatureC: 34 });
    monitor.start();
    await clock.advance(9_999);
    expect(looks).toBe(0);
    await clock.advance(1);
    expect(monitor.statuses[0]?.health.state).toMatchObject({ name: 'quarantined' });
  });
});

describe('the monitor', () => {
  it('reads at once, then at the interval, until it is stopped', async () => {
    const { clock, monitor, scene } = watch('one-h200');
    monitor.start();
    await clock.advance(0);
    expect(scene.looks).toBe(1);
    await clock.advance(30_000);
    expect(scene.looks).toBe(4);
    monitor.stop();
    await clock.advance(60_000);
    expect(scene.looks).toBe(4);
  });

  it('reads once per interval even if it was started twice or restarted', async () => {
    const { clock, monitor, scene } = watch('one-h200');
    monitor.start();
    monitor.start();
    await clock.advance(0);
    monitor.stop();
    monitor.start();
    await clock.advance(10_000);
    expect(scene.looks).toBe(3);
  });

  it('does nothing if no device can be read', async () => {
    const { clock, monitor, scene } = watch('driver-error');
    monitor.start();
    await clock.advance(60_000);
    expect(scene.looks).toBe(0);
  });

  it('shows the memory, utilization and temperature of each device', async () => {
    const { monitor } = watch('mig-a100');
    await monitor.readNow();
    expect(monitor.statuses[1]).toMatchObject({
      memory: { totalBytes: 19_968 * 2 ** 20, usedBytes: 25 * 2 ** 20 },
      utilization: undefined,
      temperatureC: 38,
    });
    expect(monitor.statuses[4]).toMatchObject({ utilization: 0, temperatureC: 31 });
  });

  it('reports each quarantine and each readmission once', async () => {
    const { clock, monitor, changes, scene } = watch('one-h200');
    monitor.start();
    await clock.advance(0);
    scene.says = 'one-h200-ecc';
    await clock.advance(20_000);
    scene.says = 'one-h200';
    await clock.advance(60_000);
    expect(changes).toEqual([
      'GPU-6f2d41c8 healthy → quarantined',
      'GPU-6f2d41c8 quarantined → healthy',
    ]);
  });

  it.each<Word>(['eight-a100-lost', 'seven-a100', 'lost', 'lost-beside'])(
    'quarantines only the lost GPU (%s)',
    async (word) => {
      const { monitor, scene } = watch('eight-a100');
      scene.says = word;
      await monitor.readNow();
      expect(statesOf(monitor)).toBe('hhhqhhhh');
    },
  );

  it('quarantines all GPUs after nvidia-smi has failed three times', async () => {
    const { monitor, scene } = watch('eight-a100');
    scene.says = 'driver-error';
    await monitor.readNow();
    await monitor.readNow();
    expect(statesOf(monitor)).toBe('ssssssss');
    await monitor.readNow();
    expect(statesOf(monitor)).toBe('qqqqqqqq');
  });

  it.each<Word>(['version-mismatch', 'seven-a100'])(
    'does not quarantine a device because nvidia-smi was updated (then %s)',
    async (then) => {
      const { monitor, scene } = watch('eight-a100');
      scene.says = 'version-mismatch';
      for (let look = 0; look < 5; look++) await monitor.readNow();
      expect(statesOf(monitor)).toBe('ssssssss');
      scene.says = then;
      await monitor.readNow();
      expect(statesOf(monitor)).toBe(then === 'seven-a100' ? 'hhhqhhhh' : 'ssssssss');
    },
  );

  it('quarantines a GPU that was switched to MIG mode', async () => {
    const { monitor } = watchReport('one-h200', (report) => ({
      ...report,
      gpus: report.gpus.map((gpu) => ({ ...gpu, isMigEnabled: true })),
    }));
    await monitor.readNow();
    expect(monitor.statuses[0]?.health.state).toMatchObject({
      name: 'quarantined',
      reason: expect.stringContaining('MIG'),
    });
  });

  it('identifies its GPUs by UUID when their order changes', async () => {
    const { monitor } = watchReport('eight-a100', (report) => ({
      ...report,
      gpus: report.gpus
        .map((gpu) => ({ ...gpu, index: 7 - gpu.index, eccVolatile: 0 }))
        .reverse()
        .map((gpu, place) => (place === 0 ? { ...gpu, isRemapFailed: true } : gpu)),
    }));
    await monitor.readNow();
    expect(statesOf(monitor)).toBe('hhhhhhhq');
  });

  it('quarantines missing MIG instances, not the GPU beside them', async () => {
    const { monitor, scene } = watch('mig-a100');
    scene.says = 'mig-empty';
    await monitor.readNow();
    expect(statesOf(monitor)).toBe('qqqqh');
  });
});
