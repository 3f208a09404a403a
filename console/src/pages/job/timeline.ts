// What happened to a job, in order, from its details and its record.
import type { JobDetails, JobRecord } from '../../../../src/client.ts';
import type { Tone } from '../../parts/badge.tsx';
import { sayStatus } from '../../parts/job-status.ts';
import { sayDuration } from '../../parts/time.tsx';

export interface TimelineEvent {
  /** Unix ms. */
  at: number;
  text: string;
  tone: Tone;
  /** A second line. */
  note?: string | undefined;
}

export function listEvents(details: JobDetails, record: JobRecord | undefined): TimelineEvent[] {
  const { availableAt, endedAt, queuedAt, startedAt, status, submittedAt } = details;
  const events: TimelineEvent[] = [{ at: submittedAt, text: 'Submitted', tone: 'plain' }];
  for (const failed of record?.error?.attempts ?? []) {
    events.push({
      at: failed.endedAt,
      text: `Attempt ${failed.attempt} failed on ${failed.workerId}: ${failed.code}`,
      tone: 'bad',
      note: failed.outgrownGpuType
        ? `${failed.message} (out of memory on ${failed.outgrownGpuType})`
        : failed.message,
    });
  }
  if (queuedAt !== submittedAt) events.push({ at: queuedAt, text: 'Queued again', tone: 'warn' });
  if (status === 'IN_QUEUE' && record?.waitReason) {
    const { message, since = queuedAt } = record.waitReason;
    events.push({ at: since, text: 'Waits', tone: 'warn', note: message });
  }
  if (availableAt !== undefined) events.push({ at: availableAt, text: 'May start', tone: 'plain' });
  if (startedAt !== null) {
    const worker = record?.workerId ? ` on ${record.workerId}` : '';
    const note = `After ${sayDuration(details.delayTime)} in the queue`;
    events.push({
      at: startedAt,
      text: `Attempt ${details.attempt} started${worker}`,
      tone: 'busy',
      note,
    });
  }
  if (endedAt !== null) {
    const isGood = status === 'COMPLETED';
    const isBad = status === 'FAILED' || status === 'TIMED_OUT';
    events.push({
      at: endedAt,
      text: sayStatus(status),
      tone: isGood ? 'good' : isBad ? 'bad' : 'plain',
      note: `Run time of the last attempt: ${sayDuration(details.executionTime)}`,
    });
  }
  return events.sort((a, b) => a.at - b.at);
}
