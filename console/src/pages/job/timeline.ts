// What happened to a job, in order, in words.
import type { JobDetails, JobRecord, TimelineEntry } from '../../../../src/client.ts';
import { numberAttempt } from '../../../../src/wire/job/job.ts';
import { sayBytes } from '../../parts/bytes.ts';
import { sayStatus } from '../../parts/job/job-status.ts';
import { sayDuration } from '../../parts/time.tsx';
import type { TimelineEvent } from '../../parts/timeline.tsx';
import { sayWay } from '../pods/worker-events.ts';

export function listEvents(details: JobDetails, record: JobRecord | undefined): TimelineEvent[] {
  const { queuedAt, timeline } = details;
  const events = timeline.map((entry) => describe(entry, details));
  if (record?.waitReason) {
    const { message, since = queuedAt } = record.waitReason;
    events.push({ at: since, text: 'Waiting', tone: 'warn', note: message });
  }
  return events.sort((a, b) => a.at - b.at);
}

function describe(entry: TimelineEntry, details: JobDetails): TimelineEvent {
  const { at, attempt, code, level, message, nextAt, outgrownGpuType, status, waitedMs } = entry;
  const { workerId } = entry;
  const on = workerId ? ` on ${workerId}` : '';
  const which = `Attempt ${numberAttempt(entry)}`;
  switch (entry.event) {
    case 'submitted':
      return { at, text: 'Submitted', tone: 'plain' };
    case 'queued':
      return { at, text: 'Queued again', tone: 'warn' };
    case 'due':
      return { at, text: 'May start', tone: 'plain' };
    case 'started': {
      const isLast = attempt === details.attempt && details.startedAt === at;
      const note = isLast ? `After ${sayDuration(details.delayTime)} in the queue` : undefined;
      return { at, text: `${which} started${on}`, tone: 'busy', note };
    }
    case 'worker_started':
      return { at, text: `Worker ${workerId} was ready`, tone: 'plain', parts: entry.start };
    case 'worker_woken': {
      const { bytes = 0, waitedMs = 0, way } = entry;
      const how = way === 'cold' ? ', with its model started anew' : sayWay(way);
      const size = bytes > 0 ? ` with ${sayBytes(bytes)}` : '';
      return {
        ...{ at, text: `Worker ${workerId} was back on its GPU`, tone: 'plain' },
        note: `After ${sayDuration(waitedMs)}${size}${how}`,
      };
    }
    case 'model_wait':
      return { at, text: `${which} ${message}`, tone: 'plain' };
    case 'first_chunk':
      return { at, text: `First chunk of ${which.toLowerCase()}`, tone: 'busy' };
    case 'suspended':
      return { at, text: `${which} was suspended for a more urgent job`, tone: 'warn' };
    case 'resumed': {
      const note = waitedMs === undefined ? undefined : `After ${sayDuration(waitedMs)}`;
      return { at, text: `${which} is no longer suspended`, tone: 'busy', note };
    }
    case 'stopped':
      return {
        ...{ at, text: `${which} was stopped${on}`, tone: 'plain' },
        note: level && STOPS[level],
      };
    case 'failed': {
      const note = outgrownGpuType ? `${message} (out of memory on ${outgrownGpuType})` : message;
      return { at, text: `${which} failed${on}: ${code}`, tone: 'bad', note };
    }
    case 'lease_lost':
      return { at, text: `${which} lost its worker${on}`, tone: 'bad', note: message };
    case 'released':
      return { at, text: `${which} was given back${on}`, tone: 'warn' };
    case 'waiting':
      return { at, text: `${which} ${message}`, tone: 'plain' };
    case 'postponed':
      return { at, text: `${which} asked for a later one`, tone: 'warn', note: message };
    case 'retried':
      return { at, text: `Retried: run ${entry.run}`, tone: 'plain' };
    case 'ended': {
      const isBad = status === 'FAILED' || status === 'TIMED_OUT';
      const note =
        attempt === undefined
          ? undefined
          : `Run time of the last attempt: ${sayDuration(details.executionTime)}`;
      return {
        ...{ at, note, text: status ? sayStatus(status) : 'Ended' },
        tone: status === 'COMPLETED' ? 'good' : isBad ? 'bad' : 'plain',
      };
    }
    case 'webhook_delivered':
      return { at, text: `Webhook delivered at attempt ${attempt}`, tone: 'good' };
    case 'webhook_failed': {
      const next = nextAt === undefined ? '' : `; next attempt after ${sayDuration(nextAt - at)}`;
      return {
        ...{ at, text: `Attempt ${attempt} to deliver the webhook failed`, tone: 'warn' },
        note: `${message}${next}`,
      };
    }
    case 'webhook_given_up':
      return { at, text: `Webhook given up after ${attempt} attempts`, tone: 'bad', note: message };
  }
}

const STOPS: Readonly<Record<NonNullable<TimelineEntry['level']>, string>> = {
  signal: 'The handler ended after its signal.',
  return: 'Its generator was ended.',
  thread: 'The worker ended its thread.',
  process: 'The worker ended its process.',
};
