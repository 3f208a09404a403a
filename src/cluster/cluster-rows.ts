// What a node of a cluster knows: the nodes and the shards, and the statements on their tables. All times are those
// of the database, so the clocks of the nodes do not matter.

import { describeHolders } from '../store/postgres/database.ts';
import { flag, number, text, textOrNull } from '../store/sql/rows.ts';
import type { Query, Row } from '../store/store.ts';

export interface NodeView {
  id: string;
  /** Where other nodes reach it. */
  url: string;
  /** Its lease is valid, by the clock of the database. */
  isLive: boolean;
  /** It hands its shards over and takes no new ones. */
  isLeaving: boolean;
  /** Version of its program's schema. */
  version: number;
  /** Changes with each change of endpoints, templates and keys that the node has made as the leader. */
  controlNumber: number;
}

export interface ShardView {
  id: number;
  /** Node that serves it; null after an offer, and before the first claim. */
  owner: string | null;
  /** Node that may claim it. */
  offeredTo: string | null;
  /** The last node that could not open it. It gets the shard only if there is no other node. */
  failedOn: string | null;
  /** Counts the claims. */
  epoch: number;
}

export interface ClusterView {
  nodes: readonly NodeView[];
  shards: readonly ShardView[];
}

/** First half of the key of a node's lock: 'node' in ASCII. The second half is made from schema and ID. */
const NODE_CLASS = 0x6e_6f_64_65;
/** Rows of nodes that have been dead for so long are of no use to anybody, ms. */
const FORGET_MS = 600_000;

/** How long to wait for the end of a session, ms. */
const END_MS = 500;

const NOW = '(extract(epoch from clock_timestamp()) * 1000)::bigint';

/** Whether programs of a version may use the schema. */
const IS_USABLE = 'cast(? as bigint) >= (select coalesce(max(oldest), 0) from schema_version)';

const SHARD_COLUMNS = 'id, owner, offered_to, failed_on, epoch';

export interface NodeRow {
  id: string;
  url: string;
  version: number;
  isLeaving: boolean;
  controlNumber: number;
}

export class ClusterRows {
  readonly #schema: string;
  readonly #leaseMs: number;
  readonly #freeLockMs: number;

  constructor(options: { schema: string; leaseMs: number; freeLockMs: number }) {
    this.#schema = options.schema;
    this.#leaseMs = options.leaseMs;
    this.#freeLockMs = options.freeLockMs;
  }

  /** Locks the ID for the session. */
  lock(id: string): Query {
    const sql = `select pg_try_advisory_lock(${NODE_CLASS}, ${this.#hash('cast(? as text)')}) as locked`;
    return { sql, params: [id] };
  }

  /** Ends a session that has locked an ID. */
  terminate(pid: number): Query {
    return {
      sql: `select pg_terminate_backend(pid, ${END_MS}) from pg_locks
        where ${describeHolders(NODE_CLASS)} and pid = cast(? as bigint)`,
      params: [pid],
    };
  }

  /** Removes the rows of dead nodes that have this URL, or that have been dead for long. */
  removeDead({ id, url }: NodeRow): Query {
    return {
      sql: `delete from node where id <> ? and (url = ? or until < ${NOW} - ${FORGET_MS})
        and not ${this.#isLive('node')}`,
      params: [id, url],
    };
  }

  /**
   * Fails with a unique violation if another node has the URL. Returns no row if the schema is too new for the node:
   * also a node whose lease ended while others migrated the database must not come back.
   */
  join({ controlNumber, id, isLeaving, url, version }: NodeRow): Query {
    return {
      sql: `insert into node (id, url, version, leaving, control_number, renewed_at, until)
        select ?, ?, cast(? as bigint), cast(? as bigint), cast(? as bigint), ${NOW}, ${NOW} + ${this.#leaseMs}
        where ${IS_USABLE}
        on conflict (id) do update set url = excluded.url, version = excluded.version,
          leaving = excluded.leaving, control_number = excluded.control_number,
          renewed_at = excluded.renewed_at, until = excluded.until
        returning renewed_at as now`,
      params: [id, url, version, Number(isLeaving), controlNumber, version],
    };
  }

  /** Returns no row if the node's row has been removed, or if the schema is too new for the node. */
  renew({ id, version }: NodeRow): Query {
    return {
      sql: `update node set renewed_at = ${NOW}, until = ${NOW} + ${this.#leaseMs}
        where id = ? and ${IS_USABLE}
        returning renewed_at as now`,
      params: [id, version],
    };
  }

  /** Names only columns that every version has: the schema may be an earlier one. */
  liveVersions(): Query {
    return {
      sql: `select version from node where ${this.#isLive('node')} order by id`,
      params: [],
    };
  }

  nodes(): Query {
    return {
      sql: `select id, url, version, leaving, control_number, ${this.#isLive('node')}::int as live
        from node order by id`,
      params: [],
    };
  }

  shards(): Query {
    return { sql: `select ${SHARD_COLUMNS} from shard order by id`, params: [] };
  }

  countShards(): Query {
    return { sql: 'select count(*) as n from shard', params: [] };
  }

  /** Adds all shards, unless another node does it first. */
  describeSetup(shards: number): string {
    return `begin; lock table shard in share row exclusive mode;
      insert into shard (id) select generate_series(0, ${shards - 1})
        where not exists (select from shard);
      commit`;
  }

  /**
   * Makes the node the owner of a shard that no live node owns and that is not offered to another member. A claim that
   * waited for another one finds the row changed since, and does nothing.
   */
  claim(shard: number, me: string): Query {
    return {
      sql: `with free as materialized (
          select shard.id, shard.owner, shard.offered_to, shard.failed_on, shard.epoch
          from shard
            left join node holder on holder.id = shard.owner
            left join node heir on heir.id = shard.offered_to
            join node me on me.id = ?
          where shard.id = cast(? as bigint) and me.until > ${NOW}
            and (shard.owner is null or shard.owner = me.id or not ${this.#isLive('holder')})
            and (shard.owner is not null or shard.offered_to is null or shard.offered_to = me.id
              or heir.leaving = 1 or not ${this.#isLive('heir')})
        )
        update shard set owner = ?, offered_to = null, epoch = shard.epoch + 1
        from free
        where shard.id = free.id and shard.epoch = free.epoch
          and shard.owner is not distinct from free.owner
          and shard.offered_to is not distinct from free.offered_to
        returning shard.id, shard.owner, shard.offered_to, shard.failed_on, shard.epoch`,
      params: [me, shard, me],
    };
  }

  offer(shard: number, { me, to }: { me: string; to: string | null }): Query {
    return {
      sql: `update shard set owner = null, offered_to = ? where id = cast(? as bigint) and owner = ?
        returning ${SHARD_COLUMNS}`,
      params: [to, shard, me],
    };
  }

  /** Like `offer`, for a shard that this node could not open. */
  giveUp(shard: number, { me, to }: { me: string; to: string }): Query {
    return {
      sql: `update shard set owner = null, offered_to = ?, failed_on = owner
        where id = cast(? as bigint) and owner = ? returning ${SHARD_COLUMNS}`,
      params: [to, shard, me],
    };
  }

  shard(id: number): Query {
    return {
      sql: `select ${SHARD_COLUMNS} from shard where id = cast(? as bigint)`,
      params: [id],
    };
  }

  noteControl(id: string, controlNumber: number): Query {
    return {
      sql: 'update node set control_number = cast(? as bigint) where id = ?',
      params: [controlNumber, id],
    };
  }

  beginLeaving(id: string): Query {
    return { sql: 'update node set leaving = 1 where id = ?', params: [id] };
  }

  remove(id: string): Query {
    return { sql: 'delete from node where id = ?', params: [id] };
  }

  /** False too for a row that an outer join has not found. Looks for the lock only after a missed renewal. */
  #isLive(row: string): string {
    return `coalesce(${row}.until > ${NOW} and case
      when ${row}.renewed_at > ${NOW} - ${this.#freeLockMs} then true
      else exists (select from pg_locks where ${describeHolders(NODE_CLASS)} and granted
        and objid = ${this.#hash(`${row}.id`)}::oid) end, false)`;
  }

  #hash(id: string): string {
    return `hashtext('${this.#schema}/' || ${id})`;
  }
}

export function readNode(row: Row): NodeView {
  return {
    id: text(row, 'id'),
    url: text(row, 'url'),
    isLive: flag(row, 'live'),
    isLeaving: flag(row, 'leaving'),
    version: number(row, 'version'),
    controlNumber: number(row, 'control_number'),
  };
}

export function readShard(row: Row): ShardView {
  return {
    id: number(row, 'id'),
    owner: textOrNull(row, 'owner'),
    offeredTo: textOrNull(row, 'offered_to'),
    failedOn: textOrNull(row, 'failed_on'),
    epoch: number(row, 'epoch'),
  };
}
