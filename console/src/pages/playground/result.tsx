// What came back for the playground's job: status, timings, chunks, output and error.

import { Chunks } from '../../output/chunks.tsx';
import { Value } from '../../output/value.tsx';
import { Badge } from '../../parts/badge.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { JobError } from '../../parts/job/job-error.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';
import { Problem } from '../../parts/problem.tsx';
import { sayDuration } from '../../parts/time.tsx';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';
import type { Attempt } from './attempt.ts';

export function Result({ attempt, endpoint }: { attempt: Attempt; endpoint: string }) {
  const { chunks, error, jobId, record } = attempt;
  const status = record?.status ?? (chunks.length > 0 ? 'IN_PROGRESS' : 'IN_QUEUE');
  const file = jobId ?? 'output';
  // The output of a stream is the list of its chunks.
  const hasOwnOutput = record?.output !== undefined && chunks.length === 0;
  return (
    <div aria-live="polite">
      <p class="status-line">
        {error ? (
          <Badge text="Not run" tone="bad" />
        ) : (
          <Badge text={sayStatus(status)} tone={JOB_TONES[status]} />
        )}
        {jobId && (
          <a class="mono" href={hrefOf(`${pathOf(endpoint)}/jobs/${encodeURIComponent(jobId)}`)}>
            {jobId}
          </a>
        )}
      </p>
      {error && <Problem error={error} />}
      <Figures figures={listFigures(attempt)} />
      {record?.waitReason && <p class="note">{record.waitReason.message}</p>}
      {record?.error && <JobError error={record.error} />}
      {(chunks.length > 0 || (attempt.mode === 'stream' && !record)) && (
        <section>
          <h3>Chunks</h3>
          <Chunks chunks={chunks} file={file} />
        </section>
      )}
      {hasOwnOutput && (
        <section>
          <h3>Output</h3>
          <Value value={record.output} file={file} />
        </section>
      )}
      {record?.status === 'COMPLETED' && record.output === undefined && chunks.length === 0 && (
        <p class="muted">
          {record.outputBytes === undefined
            ? 'The handler returned nothing.'
            : 'The output is too large for the record. Run the job as a stream to see it.'}
        </p>
      )}
    </div>
  );
}

function listFigures({ chunks, endMs, firstChunkMs, record }: Attempt) {
  const last = chunks.at(-1)?.metrics ?? {};
  return [
    ...(record ? [{ name: 'In queue', value: sayDuration(record.delayTime) }] : []),
    ...(record ? [{ name: 'Run time', value: sayDuration(record.executionTime) }] : []),
    ...(firstChunkMs === undefined
      ? []
      : [{ name: 'First chunk', value: sayDuration(firstChunkMs) }]),
    ...(endMs === undefined ? [] : [{ name: 'In all', value: sayDuration(endMs) }]),
    ...(record && record.attempt > 1 ? [{ name: 'Attempts', value: record.attempt }] : []),
    ...Object.entries(last).map(([name, value]) => ({ name, value: value.toLocaleString() })),
  ];
}
