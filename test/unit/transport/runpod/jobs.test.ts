import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { StreamedOutput } from '../../../../src/transport/runpod/bodies.ts';
import { RunPodJobs, RunPodLedger } from '../../../../src/transport/runpod/jobs.ts';

it('keeps the last 1,000 ended jobs of a RunPod worker, which can still be stopped', () => {
  const jobs = new RunPodJobs({
    ledger: undefined,
    createStreamed: () => new StreamedOutput(),
    onRequeued: () => undefined,
  });
  for (let n = 0; n <= 1_000; n++) {
    const lease = jobs.add({ jobId: `job-${n}`, input: new Uint8Array(0) });
    const held = jobs.find(lease?.token ?? '');
    if (held) jobs.remove(held);
  }
  expect(jobs.size).toBe(0);
  expect(['job-0', 'job-1', 'job-1000'].map((id) => jobs.stop(id))).toEqual([false, true, true]);
});

// What the successor of a process reads of its list of jobs after a disk was full.

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-ledger-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const takeOver = (folder: string) =>
  new RunPodLedger({ folder, log: silentLog })
    .takeOver({ workerId: 'w', incarnation: 2 })
    .flatMap(({ jobIds }) => jobIds);

it('reads all other jobs beside an incomplete line', () => {
  const folder = makeFolder();
  writeFileSync(join(folder, 'w.1.jobs'), '+"a"\n+"b+"c"\n+"d"\n+"e');
  expect(takeOver(folder)).toEqual(['a', 'd']);
});

it('goes on with the next write after a failed one', () => {
  const folder = join(makeFolder(), 'jobs');
  const away = `${folder}.away`;
  const ledger = new RunPodLedger({ folder, log: silentLog });
  ledger.open({ workerId: 'w', incarnation: 1 });
  ledger.add('a');
  renameSync(folder, away);
  ledger.add('b');
  renameSync(away, folder);
  const path = join(folder, 'w.1.jobs');
  // What a full disk has taken of the line.
  writeFileSync(path, `${readFileSync(path, 'utf8')}+"b`);
  ledger.add('c');
  expect(takeOver(folder)).toEqual(['a', 'c']);
});
