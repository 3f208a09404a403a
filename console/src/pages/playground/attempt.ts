// Runs one job for the playground and notes what comes back and when.
import { useEffect, useRef, useState } from 'preact/hooks';
import { callOf } from '../../../../src/client/api-caller.ts';
import type { JobRecord, JobReference, StreamChunk } from '../../../../src/client.ts';
import { isTerminal } from '../../../../src/wire/job/job.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { collectChunks, patientCaller } from '../../output/chunk-reader.ts';
import { caller } from '../../platform/calls.ts';
import { asError } from '../../platform/polling.ts';
import type { Mode } from './tries.ts';

export interface Attempt {
  mode: Mode;
  /** JSON text. */
  input: string;
  /** Unix ms. */
  startedAt: number;
  jobId?: string;
  /** ms from the start. */
  firstChunkMs?: number;
  endMs?: number;
  /** Of the job's last attempt. */
  chunks: readonly StreamChunk[];
  record?: JobRecord;
  error?: Error;
}

/** Time between two polls of the job, ms. It grows with the age of the job. */
const POLL_MS = { min: 500, max: 2_000 };

interface Start {
  mode: Mode;
  input: string;
  /** Parsed from it. */
  value: object;
}

export function useAttempt(endpoint: string) {
  const [attempt, setAttempt] = useState<Attempt>();
  const abort = useRef<AbortController>(undefined);
  useEffect(() => () => abort.current?.abort(), [endpoint]);

  const start = async ({ input, mode, value }: Start) => {
    abort.current?.abort();
    const own = new AbortController();
    abort.current = own;
    const { signal } = own;
    const run: Attempt = { mode, input, startedAt: Date.now(), chunks: [] };
    const draw = () => {
      if (!signal.aborted) setAttempt({ ...run });
    };
    draw();
    try {
      await runJob({ endpoint, value, run, draw, signal });
    } catch (error) {
      run.error = asError(error);
    }
    run.endMs = Date.now() - run.startedAt;
    draw();
  };
  const cancel = async () => {
    if (!attempt?.jobId) return;
    const call = callOf(JOB_ROUTES.cancelJob, { endpoint, job: attempt.jobId });
    await caller.json({ ...call, repeatable: false });
  };
  return { attempt, start, cancel };
}

interface Run {
  endpoint: string;
  value: object;
  run: Attempt;
  draw: () => void;
  signal: AbortSignal;
}

async function runJob({ draw, endpoint, run, signal, value }: Run): Promise<void> {
  if (run.mode === 'runsync') {
    run.record = await caller.json<JobRecord>({
      ...callOf(JOB_ROUTES.runJobSync, { endpoint }),
      body: { input: value },
      repeatable: false,
      signal,
    });
    run.jobId = run.record.id;
    draw();
  } else {
    const { id } = await caller.json<JobReference>({
      ...callOf(JOB_ROUTES.runJob, { endpoint }),
      body: { input: value },
      repeatable: false,
      signal,
    });
    run.jobId = id;
    draw();
    const follow = { endpoint, id, run, draw, signal };
    await Promise.all([awaitEnd(follow), run.mode === 'stream' && collect(follow)]);
    return;
  }
  await awaitEnd({ endpoint, id: run.jobId, run, draw, signal });
}

type Follow = Omit<Run, 'value'> & { id: string };

async function collect({ draw, endpoint, id, run, signal }: Follow): Promise<void> {
  const onChange = (chunks: readonly StreamChunk[]) => {
    run.chunks = chunks;
    if (chunks.length > 0) run.firstChunkMs ??= Date.now() - run.startedAt;
    draw();
  };
  await collectChunks({ endpoint, job: id, signal, onChange });
}

async function awaitEnd({ draw, endpoint, id, run, signal }: Follow): Promise<void> {
  while (!run.record || !isTerminal(run.record.status)) {
    if (run.record) {
      const pause = Math.min(POLL_MS.max, Math.max(POLL_MS.min, (Date.now() - run.startedAt) / 10));
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    const call = callOf(JOB_ROUTES.getJobStatus, { endpoint, job: id });
    run.record = await patientCaller.json<JobRecord>({ ...call, signal });
    draw();
  }
}
