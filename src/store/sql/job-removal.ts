// Removes jobs with everything that belongs to them: many jobs in one statement for each table.
import type { Step, StoredJob } from '../store.ts';
import { splitKeys, writeList } from './key-lists.ts';
import { text } from './rows.ts';
import { dropPayloads } from './unused-payloads.ts';

export function* removeJobs(jobs: readonly StoredJob[]): Step<void> {
  for (const [endpointId, ofEndpoint] of Map.groupBy(jobs, (job) => job.endpointId)) {
    const notified = ofEndpoint.filter(({ webhook }) => webhook !== null).map(({ id }) => id);
    const kept = new Set<string>();
    for (const ids of splitKeys(notified)) yield* findRecorded(endpointId, ids, kept);
    for (const ids of splitKeys(ofEndpoint.map(({ id }) => id))) {
      yield* removeListed(endpointId, ids, kept);
    }
  }
}

/** Adds the jobs whose output the record of a delivery refers to. */
function* findRecorded(endpointId: string, ids: readonly string[], found: Set<string>): Step<void> {
  const rows = yield {
    sql: `select distinct source_job from delivery_record
      where endpoint_id = ? and source_job in ${writeList(ids.length)}`,
    params: [endpointId, ...ids],
  };
  for (const row of rows) found.add(text(row, 'source_job'));
}

function* removeListed(
  endpointId: string,
  ids: readonly string[],
  kept: ReadonlySet<string>,
): Step<void> {
  const params = [endpointId, ...ids];
  const list = writeList(ids.length);
  yield* dropPayloads('input', endpointId, ids);
  yield { sql: `delete from job_log where endpoint_id = ? and job_id in ${list}`, params };
  const dropped = kept.size === 0 ? [ids] : splitKeys(ids.filter((id) => !kept.has(id)));
  for (const each of dropped) yield* dropPayloads('output', endpointId, each);
  yield* dropPayloads('chunks', endpointId, ids);
  yield { sql: `delete from job where endpoint_id = ? and id in ${list}`, params };
}
