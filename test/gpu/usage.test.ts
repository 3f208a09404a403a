// Samples this machine's GPUs, beside nvidia-smi's own figures, and prints what sampling costs.
import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { silentLog } from '../../src/base/log.ts';
import type { GpuFigures } from '../../src/worker/gpu/gpu-accounts.ts';
import { GpuUsageFeed } from '../../src/worker/gpu/gpu-usage-feed.ts';
import { findProgram } from '../../src/worker/gpu/program.ts';

const EVERY_MS = 1_000;
const SAMPLES = 15;

const command = await findProgram('nvidia-smi', process.env['PATH'] ?? '');

function ask(fields: string): string[][] {
  const args = [`--query-gpu=${fields}`, '--format=csv,noheader,nounits'];
  const lines = execFileSync(command ?? 'nvidia-smi', args, { encoding: 'utf8' }).trim();
  return lines.split('\n').map((line) => line.split(', '));
}

it('samples agree with nvidia-smi', { timeout: 120_000 }, async () => {
  if (command === undefined) expect.fail('there is no nvidia-smi on the PATH');
  const devices = ask('uuid,power.draw');
  const noted: { figures: GpuFigures; usedMib: number }[] = [];
  const askUsedMib = () => ask('memory.used').reduce((sum, [used]) => sum + Number(used), 0);
  const uuids = devices.map(([uuid = '']) => uuid);
  const worker = {
    ...{ uuids, pid: process.pid },
    // At the same time: the memory of other processes changes.
    noteGpuFigures: (figures: GpuFigures) => void noted.push({ figures, usedMib: askUsedMib() }),
  };
  const feed = new GpuUsageFeed({ command, workers: [worker], everyMs: EVERY_MS, log: silentLog });
  feed.start();
  try {
    await expect.poll(() => noted.length, { timeout: 100_000 }).toBeGreaterThanOrEqual(SAMPLES);
    const share = (feed.cpuSeconds / ((noted.length * EVERY_MS) / 1_000)) * 100;
    console.log(
      `sampling ${devices.length} GPU(s) every ${EVERY_MS} ms: ${share.toFixed(2)} % of one processor, the start of nvidia-smi included`,
    );
  } finally {
    feed.stop();
  }
  const last = noted.at(-1)?.figures;
  expect(last).toMatchObject({ vramScope: 'devices', utilization: expect.any(Number) });
  const errors = noted.map(({ figures: { vramBytes = 0 }, usedMib }) =>
    Math.abs(vramBytes / 2 ** 20 - usedMib),
  );
  expect(Math.min(...errors)).toBeLessThan(1_024);
  if (devices.every(([, watts]) => Number(watts) > 0)) {
    expect(last?.powerWatts).toBeGreaterThan(0);
  }
});
