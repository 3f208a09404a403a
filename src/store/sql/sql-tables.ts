// The tables of an SQL database: all statements that write. sql-reader.ts has those that read.
import type { Counts } from '../live/live-endpoint.ts';
import {
  type ChunkBatch,
  type EndpointBase,
  type FileKey,
  type JobKey,
  OWNER,
  type Payload,
  type RecordPiece,
  type ResourceKey,
  type StagedPayload,
  type Step,
  type StoredDelivery,
  type StoredJob,
  type StoredKey,
  type StoredResource,
  type StoredWorker,
  type UnusedPayload,
  type VersionKey,
} from '../store.ts';
import type { AddedRow, ChangedRow, Tables } from '../tables.ts';
import { insertRecord, removeRecord } from './delivery-record.ts';
import { deleteFileParts, insertFilePart } from './file-parts.ts';
import { compareRows, imageColumns, listImageValues } from './job-row.ts';
import {
  clearPayload,
  deleteVersionParts,
  insertParts,
  insertVersionPart,
} from './payload-parts.ts';
import { text } from './rows.ts';
import { SqlReader } from './sql-reader.ts';
import {
  addPart,
  beginFile,
  beginPayload,
  chooseFileOrigin,
  deletePayload,
  deleteUnused,
  disuseFiles,
  dropPayloads,
  findNextOrigin,
  splitKeys,
  usePayload,
  writeList,
} from './unused-payloads.ts';

const INSERT = `insert into job (${imageColumns.join(', ')})
  values (${imageColumns.map(() => '?').join(', ')})`;

/** By the columns that they write. A queue needs a few dozen of them. */
const updates = new Map<number, string>();

function findUpdate(bits: number, columns: readonly number[]): string {
  const known = updates.get(bits);
  if (known !== undefined) return known;
  const assignments = columns.map((index) => `${imageColumns[index]} = ?`);
  const sql = `update job set ${assignments.join(', ')} where endpoint_id = ? and id = ?`;
  updates.set(bits, sql);
  return sql;
}

export class SqlTables extends SqlReader implements Tables {
  readonly rowsAtOnce: number = 1;

  *putEndpoint(endpoint: EndpointBase): Step<void> {
    const { createdAt, deleted = false, deployment = null, id, settings, shard = null } = endpoint;
    yield {
      sql: `insert into endpoint (id, user_id, settings, deployment, deleted, created_at, shard)
        values (?, ?, ?, ?, ?, ?, coalesce(cast(? as bigint), 0))
        on conflict (id) do update set settings = excluded.settings,
          deployment = excluded.deployment, deleted = excluded.deleted,
          shard = coalesce(cast(? as bigint), endpoint.shard)`,
      params: [
        id,
        endpoint.userId ?? OWNER,
        JSON.stringify(settings),
        deployment && JSON.stringify(deployment),
        Number(deleted),
        createdAt,
        shard,
        shard,
      ],
    };
  }

  *removeEndpoint(id: string): Step<void> {
    yield { sql: 'delete from worker where endpoint_id = ?', params: [id] };
    // Output of jobs that were removed before their deliveries.
    const outputs = `job_output where endpoint_id = ? and job_id in (
      select source_job from delivery_record where endpoint_id = ? and source_job is not null)`;
    yield disuseFiles('output', outputs, [id, id]);
    yield { sql: `delete from ${outputs} and file_bytes is null`, params: [id, id] };
    yield { sql: 'delete from delivery_record where endpoint_id = ?', params: [id] };
    yield { sql: 'delete from delivery where endpoint_id = ?', params: [id] };
    yield {
      sql: `delete from resource where kind in ('batch', 'batch_end', 'batch_ended', 'decision', 'file', 'file_removed',
          'file_upload', 'flow', 'flow_ended', 'flow_input', 'flow_progress', 'gpu_use',
          'input_schema', 'pause', 'rate', 'schedule', 'series', 'share', 'version')
        and parent = ?`,
      params: [id],
    };
    yield { sql: 'delete from endpoint where id = ?', params: [id] };
  }

  *putResource({ body, id, kind, parent, position, userId }: StoredResource): Step<void> {
    yield {
      sql: `insert into resource (kind, id, user_id, parent, position, body)
        values (?, ?, ?, ?, ?, ?)
        on conflict (kind, id) do update set body = excluded.body`,
      params: [kind, id, userId, parent, position, body],
    };
  }

  *removeResource({ id, kind }: ResourceKey): Step<void> {
    yield { sql: 'delete from resource where kind = ? and id = ?', params: [kind, id] };
  }

  putVersionPart(key: VersionKey, index: number, part: Uint8Array): Step<void> {
    return insertVersionPart(key, index, part);
  }

  removeVersionParts(key: VersionKey, limit: number): Step<void> {
    return deleteVersionParts(key, limit);
  }

  putFilePart(key: FileKey, index: number, part: Uint8Array): Step<void> {
    return insertFilePart(key, index, part);
  }

  removeFileParts(key: FileKey, limit: number): Step<void> {
    return deleteFileParts(key, limit);
  }

  *removeKey(id: string): Step<void> {
    yield { sql: 'delete from api_key where id = ?', params: [id] };
  }

  *addJobRows(added: readonly AddedRow[]): Step<void> {
    for (const { job, payloads } of added)
      yield { sql: INSERT, params: listImageValues(job, payloads) };
  }

  *changeJobRows(changes: readonly ChangedRow[]): Step<void> {
    for (const { after, before, output } of changes) {
      const { bits, columns, values } = compareRows(before, after, output);
      if (columns.length === 0) continue;
      values.push(after.endpointId, after.id);
      yield { sql: findUpdate(bits, columns), params: values };
    }
  }

  removeJobs(jobs: readonly StoredJob[]): Step<void> {
    return removeJobs(jobs);
  }

  *addCounts(counts: ReadonlyMap<string, Counts>): Step<void> {
    for (const [id, each] of counts) {
      const { cancelled, completed, failed, inProgress, inQueue, retried, timedOut } = each;
      const counts = [inQueue, inProgress, completed, failed, cancelled, timedOut, retried];
      yield {
        sql: `update endpoint set in_queue = in_queue + ?, in_progress = in_progress + ?,
          completed = completed + ?, failed = failed + ?, cancelled = cancelled + ?,
          timed_out = timed_out + ?, retried = retried + ? where id = ?`,
        params: [...counts, id],
      };
    }
  }

  *putInput(key: JobKey, input: Payload): Step<void> {
    if (input instanceof Uint8Array) yield* insertParts('job_input', key, input);
    else yield* usePayload(input);
  }

  *replaceInput(key: JobKey, input: Payload): Step<void> {
    yield* clearPayload('input', key);
    yield* deletePayload('input', key);
    yield* this.putInput(key, input);
  }

  *putOutput(key: JobKey, output: Payload): Step<void> {
    yield* this.dropOutput(key);
    yield* this.addOutput(key, output);
  }

  *addOutput(key: JobKey, output: Payload): Step<void> {
    if (output instanceof Uint8Array) yield* insertParts('job_output', key, output);
    else yield* usePayload(output);
  }

  *dropOutput(key: JobKey): Step<void> {
    yield* clearPayload('output', key);
    yield* deletePayload('output', key);
  }

  *appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): Step<void> {
    const { first, sizes } = batch;
    yield {
      sql: `insert into job_chunk (endpoint_id, job_id, attempt, first, count, sizes, bytes)
        values (?, ?, ?, ?, ?, ?, ?)`,
      params: [
        key.endpointId,
        key.id,
        key.attempt,
        first,
        sizes.length,
        JSON.stringify(sizes),
        batch.bytes,
      ],
    };
  }

  dropChunks({ endpointId, id }: JobKey): Step<void> {
    return dropPayloads('chunks', endpointId, [id]);
  }

  nextOrigin(kind: StagedPayload['kind'], key: JobKey): Step<number> {
    return findNextOrigin(kind, key);
  }

  fileOrigin(kind: StagedPayload['kind'], key: JobKey): Step<number> {
    return chooseFileOrigin(kind, key);
  }

  beginPayload(payload: StagedPayload, part: Uint8Array): Step<void> {
    return beginPayload(payload, part);
  }

  addPart(payload: StagedPayload, at: number, part: Uint8Array): Step<void> {
    return addPart(payload, at, part);
  }

  beginFile(payload: StagedPayload, bytes: number): Step<void> {
    return beginFile(payload, bytes);
  }

  deleteUnused(payloads: readonly UnusedPayload[], maxBytes: number): Step<void> {
    return deleteUnused(payloads, maxBytes);
  }

  *appendLog({ endpointId, id }: JobKey, at: number, lines: Uint8Array): Step<void> {
    yield {
      sql: 'insert into job_log (endpoint_id, job_id, at, bytes) values (?, ?, ?, ?)',
      params: [endpointId, id, at, lines],
    };
  }

  *insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void> {
    const { bytes, createdAt, endpointId, id, jobId, nextAt, receiver, attempts, url } = delivery;
    yield {
      sql: `insert into delivery (endpoint_id, id, job_id, user_id, url, receiver, created_at,
        platform_ran_ms, bytes, tries, next_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      params: [
        ...[endpointId, id, jobId, delivery.userId, url, receiver, createdAt],
        ...[delivery.platformRanMs, bytes, attempts, nextAt],
      ],
    };
    yield* insertRecord(delivery, record);
  }

  *postponeDelivery({ endpointId, id, nextAt, attempts }: StoredDelivery): Step<void> {
    yield {
      sql: 'update delivery set tries = ?, next_at = ? where endpoint_id = ? and id = ?',
      params: [attempts, nextAt, endpointId, id],
    };
  }

  *removeDelivery({ endpointId, id }: JobKey): Step<void> {
    const params = [endpointId, id];
    yield { sql: 'delete from delivery where endpoint_id = ? and id = ?', params };
    yield* removeRecord({ endpointId, id });
  }

  *putWorker(worker: StoredWorker): Step<void> {
    yield {
      sql: `insert into worker
          (endpoint_id, id, pod_id, incarnation, slots, version, devices, retry, hello_at)
        values (?, ?, ?, ?, ?, ?, ?, ?, ?)
        on conflict (endpoint_id, id) do update set pod_id = excluded.pod_id,
          incarnation = excluded.incarnation, slots = excluded.slots,
          version = excluded.version, devices = excluded.devices, retry = excluded.retry,
          hello_at = excluded.hello_at`,
      params: [
        worker.endpointId,
        worker.id,
        worker.podId,
        worker.incarnation,
        worker.slots,
        worker.version,
        JSON.stringify(worker.devices),
        worker.retry && JSON.stringify(worker.retry),
        worker.helloAt,
      ],
    };
  }

  *removeWorker(endpointId: string, id: string): Step<void> {
    yield { sql: 'delete from worker where endpoint_id = ? and id = ?', params: [endpointId, id] };
  }

  *putKey(key: StoredKey): Step<void> {
    yield {
      sql: `insert into api_key (id, hash, name, user_id, scopes, created_at, expires_at, pod_id)
        values (?, ?, ?, ?, ?, ?, ?, ?)
        on conflict (id) do update set hash = excluded.hash, name = excluded.name,
          user_id = excluded.user_id, scopes = excluded.scopes,
          created_at = excluded.created_at, expires_at = excluded.expires_at,
          pod_id = excluded.pod_id`,
      params: [
        key.id,
        key.hash,
        key.name,
        key.userId,
        JSON.stringify(key.scopes),
        key.createdAt,
        key.expiresAt,
        key.podId,
      ],
    };
  }
}

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
