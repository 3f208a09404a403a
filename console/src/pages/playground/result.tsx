// What came back for the playground's job: status, timings, chunks, output and error.

import { Chunks } from '../../output/chunks.tsx';
import { Value } from '../../output/value.tsx';
import { Badge } from '../../parts/badge.tsx';
import { Id } from '../../parts/copy.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { JobError } from '../../parts/job/job-error.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';
import { Problem } from '../../parts/problem.tsx';
import { Elapsed, sayDuration } from '../../parts/time.tsx';
import { hrefOf } from '../../routing/location.ts';
import { pathOf } from '../endpoint/frame.tsx';
import type { Attempt } from './attempt.ts';

export function Result({ attempt, endpoint }: { attempt: Attempt; endpoint: string }) {
  const { chunks, error, jobId, record } = attempt;
  // A call that waits for the end says nothing before it.
  const isCalling = attempt.mode === 'runsync' && !record;
  const status = record?.status ?? (chunks.length > 0 || isCalling ? 'IN_PROGRESS' : 'IN_QUEUE');
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
          <Id id={jobId} href={hrefOf(`${pathOf(endpoint)}/jobs/${encodeURIComponent(jobId)}`)} />
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

function listFigures({ chunks, endMs, firstChunkMs, record, startedAt }: Attempt) {
  const last = chunks.at(-1)?.metrics ?? {};
  return [
    ...(record
      ? [
          {
            name: 'Queue time',
            value: <Elapsed ms={record.delayTime} isRunning={record.status === 'IN_QUEUE'} />,
          },
          {
            name: 'Run time',
            value: (
              <Elapsed ms={record.executionTime} isRunning={record.status === 'IN_PROGRESS'} />
            ),
          },
        ]
      : []),
    ...(firstChunkMs === undefined
      ? []
      : [{ name: 'First chunk', value: sayDuration(firstChunkMs) }]),
    {
      name: 'Total',
      value: <Elapsed ms={endMs ?? 0} isRunning={endMs === undefined} key={startedAt} />,
    },
    ...(record && record.attempt > 1 ? [{ name: 'Attempts', value: record.attempt }] : []),
    ...Object.entries(last).map(([name, value]) => ({
      ...{ name, value: value.toLocaleString(), note: 'of the last chunk' },
    })),
  ];
}
