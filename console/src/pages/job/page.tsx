// One job: what happened to it, what went in and came out, and its log.

import { useEffect, useState } from 'preact/hooks';
import { callOf } from '../../../../src/client/api-caller.ts';
import type { JobDetails, JobRecord } from '../../../../src/client.ts';
import { isTerminal } from '../../../../src/wire/job/job.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Value } from '../../output/value.tsx';
import { Badge } from '../../parts/badge.tsx';
import { Figures } from '../../parts/figures/figures.tsx';
import { Confirm } from '../../parts/forms/confirm.tsx';
import { JobError } from '../../parts/job/job-error.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';
import { PageHead } from '../../parts/page-head.tsx';
import { Elapsed, sayDuration, Time } from '../../parts/time.tsx';
import { TimelineList } from '../../parts/timeline.tsx';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { may } from '../../platform/session.ts';
import { liveFrom, TOPICS } from '../../platform/topics.ts';
import { go } from '../../routing/location.ts';
import type { PageProps } from '../../routing/routes.ts';
import { LoadProblem, pathOf, useEndpoint } from '../endpoint/frame.tsx';
import { actOnJob, allowsAction } from '../jobs/job-actions.ts';
import { keepDraft } from '../playground/tries.ts';
import { JobChunks } from './job-chunks.tsx';
import { Links } from './links.tsx';
import { Log } from './log.tsx';
import { listEvents } from './timeline.ts';

interface Job {
  details: JobDetails;
  record: JobRecord;
}

const EVERY_MS = 1_000;

export function Page({ parameters: { endpoint = '', job = '' } }: PageProps) {
  const [isOver, setOver] = useState(false);
  const polled = usePolled({
    key: `job ${endpoint} ${job}`,
    load: (signal) => readJob(endpoint, job, signal),
    everyMs: isOver ? null : EVERY_MS,
    live: liveFrom([TOPICS.job(endpoint, job)], (head) => completeJob(endpoint, head)),
  });
  const { data, reload } = polled;
  const { data: record } = useEndpoint(endpoint);
  const status = data?.record.status;
  useEffect(() => setOver(status !== undefined && isTerminal(status)), [status]);
  const path = pathOf(endpoint);
  return (
    <>
      <PageHead
        title="Job"
        id={job}
        tab={job.slice(-12)}
        crumbs={[
          { name: 'Overview', path: '/' },
          { name: record?.name ?? endpoint, path },
          { name: 'Jobs', path: `${path}/jobs` },
        ]}
        badge={
          data && (
            <Badge text={sayStatus(data.record.status)} tone={JOB_TONES[data.record.status]} />
          )
        }
      >
        {data && may('jobs:write', endpoint) && (
          <Actions endpoint={endpoint} job={data} reload={reload} />
        )}
      </PageHead>
      <LoadProblem polled={polled} />
      {data && <JobBody key={data.details.attempt} endpoint={endpoint} job={data} />}
    </>
  );
}

/** The last ones: an input or an output may have 20 MB, and neither changes without the status or the attempt. */
let lastRead: { key: string; job: Job } | undefined;

async function readJob(endpoint: string, job: string, signal: AbortSignal): Promise<Job> {
  const head = await caller.json<JobHead>({
    ...callOf(JOB_ROUTES.getJob, { endpoint, job }),
    ...{ query: { input: 'false' }, signal },
  });
  return completeJob(endpoint, head, signal);
}

/** Reads record and input, if they can have changed. */
async function completeJob(endpoint: string, head: JobHead, signal?: AbortSignal): Promise<Job> {
  const key = [endpoint, head.id, head.status, head.attempt].join(' ');
  if (lastRead?.key !== key) {
    const ofJob = { endpoint, job: head.id };
    const [record, details] = await Promise.all([
      caller.json<JobRecord>({ ...callOf(JOB_ROUTES.getJobStatus, ofJob), signal }),
      caller.json<JobDetails>({ ...callOf(JOB_ROUTES.getJob, ofJob), signal }),
    ]);
    // The job may have changed since: then its next event reads again.
    lastRead = { key, job: { details, record } };
  }
  const { details, record } = lastRead.job;
  const { delayTime, executionTime, progress, waitReason } = head;
  return {
    details: { ...details, ...head },
    record: {
      ...{ ...record, delayTime, executionTime, progress },
      ...(waitReason && { waitReason }),
    },
  };
}

type JobHead = Omit<JobDetails, 'input'>;

interface ActionsProps {
  endpoint: string;
  job: Job;
  reload: () => void;
}

function Actions({ endpoint, job: { details, record }, reload }: ActionsProps) {
  const act = async (action: 'cancel' | 'retry') => {
    await actOnJob(action, endpoint, details.id);
    reload();
  };
  const runAgain = () => {
    keepDraft(endpoint, JSON.stringify(details.input, null, 2));
    go(`${pathOf(endpoint)}/playground`);
  };
  return (
    <>
      <button type="button" onClick={runAgain}>
        Edit and run again
      </button>
      {allowsAction('retry', record.status) && (
        <Confirm label="Retry" question="Queue this job again?" act={() => act('retry')} />
      )}
      {allowsAction('cancel', record.status) && (
        <Confirm label="Cancel" question="Cancel this job?" isDangerous act={() => act('cancel')} />
      )}
    </>
  );
}

function JobBody({ endpoint, job: { details, record } }: { endpoint: string; job: Job }) {
  const isOver = isTerminal(record.status);
  return (
    <>
      <Figures figures={listFigures(details, record)} />
      {record.error && <JobError error={record.error} />}
      <div class="two-columns">
        <section>
          <h2>Timeline</h2>
          <TimelineList events={listEvents(details, record)} />
        </section>
        <section>
          <h2>Input</h2>
          <Value value={details.input} file={`${details.id}-input`} />
        </section>
      </div>
      <Links job={details} />
      {record.progress !== undefined && !isOver && (
        <section>
          <h2>Progress</h2>
          <Value value={record.progress} file={`${details.id}-progress`} />
        </section>
      )}
      {record.output !== undefined && (
        <section>
          <h2>Output</h2>
          <Value value={record.output} file={`${details.id}-output`} />
        </section>
      )}
      {details.attempt > 0 && (
        <JobChunks endpoint={endpoint} job={details.id} isRunning={!isOver} />
      )}
      <Log
        endpoint={endpoint}
        job={details.id}
        bytes={details.logBytes}
        isOver={isOver && details.endedAt !== null}
      />
      <p class="muted">
        Record expires <Time at={details.expiresAt} />
      </p>
    </>
  );
}

function listFigures(details: JobDetails, record: JobRecord) {
  const {
    attempt,
    delayTime,
    executionTime,
    executionTimeout,
    group,
    tags,
    maxAttempts,
    priority,
    schedule,
  } = details;
  const { run, runAttempt = attempt } = details;
  const gpu = record.usage?.gpu;
  return [
    {
      name: 'Queue time',
      value: <Elapsed ms={delayTime} isRunning={record.status === 'IN_QUEUE'} />,
    },
    {
      name: 'Run time',
      value:
        attempt > 0 ? (
          <Elapsed ms={executionTime} isRunning={record.status === 'IN_PROGRESS'} />
        ) : (
          '–'
        ),
      note: `limit ${sayDuration(executionTimeout)}`,
    },
    {
      ...{ name: 'Attempt', value: runAttempt },
      note: `of ${maxAttempts}${run === undefined ? '' : `, run ${run}`}`,
    },
    ...(gpu ? [{ name: 'GPU time', value: sayDuration(gpu.seconds * 1_000) }] : []),
    ...(priority > 0 ? [{ name: 'Priority', value: priority }] : []),
    ...(group === undefined ? [] : [{ name: 'Group', value: group }]),
    ...(tags === undefined ? [] : [{ name: 'Tags', value: tags.join(', ') }]),
    ...(schedule ? [{ name: 'Tick', value: <Time at={schedule.tickAt} as="clock" /> }] : []),
  ];
}
