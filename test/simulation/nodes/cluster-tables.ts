// The tables `node` and `shard` of a simulated server. Carries out the statements of src/cluster/cluster-rows.ts, which
// the conformance tests run on a real server.

import { TIMINGS } from '../../../src/cluster/membership.ts';
import type { Row, SqlValue } from '../../../src/store/store.ts';

const FORGET_MS = 600_000;
const SHARD_COLUMNS = 'id, owner, offered_to, failed_on, epoch';
const OFFER = 'update shard set owner = null, offered_to = $1';

interface NodeRecord {
  id: string;
  url: string;
  version: number;
  leaving: number;
  controlNumber: number;
  renewedAt: number;
  until: number;
}

export interface ShardRecord {
  id: number;
  owner: string | null;
  offeredTo: string | null;
  failedOn: string | null;
  epoch: number;
  /** When the owner became it. */
  claimedAt: number;
}

export class UniqueViolation extends Error {}

export interface ClusterTablesOptions {
  /** The database's time. */
  now: () => number;
  /** Whether a session holds the lock of this node. */
  isLocked: (nodeId: string) => boolean;
}

type Act = (params: readonly SqlValue[]) => Row[];

export class ClusterTables {
  readonly nodes = new Map<string, NodeRecord>();
  readonly shards: ShardRecord[] = [];
  readonly #options: ClusterTablesOptions;
  /** By the beginning of the statement. */
  readonly #acts: readonly (readonly [string, Act])[] = [
    ['delete from node where id <>', ([id, url]) => this.#removeDead(String(id), String(url))],
    ['delete from node where id =', ([id]) => this.#remove(String(id))],
    ['insert into node', (params) => this.#join(params)],
    ['update node set renewed_at', ([id]) => this.#renew(String(id))],
    ['update node set control_number', ([number, id]) => this.#noteControl(Number(number), id)],
    ['update node set leaving', ([id]) => this.#beginLeaving(String(id))],
    ['select id, url, version', () => this.#listNodes()],
    [`select ${SHARD_COLUMNS} from shard order`, () => this.shards.map(toRow)],
    [`select ${SHARD_COLUMNS} from shard where`, ([id]) => this.#find(Number(id))],
    ['select count(*) as n from shard', () => [{ n: this.shards.length }]],
    ['with free as materialized', ([me, shard]) => this.#claim(String(me), Number(shard))],
    [`${OFFER}, failed_on = owner`, (params) => this.#offer(params, { hasFailed: true })],
    [OFFER, (params) => this.#offer(params, { hasFailed: false })],
  ];

  constructor(options: ClusterTablesOptions) {
    this.#options = options;
  }

  addShard(id: number): void {
    const free = { owner: null, offeredTo: null, failedOn: null };
    this.shards.push({ ...free, id, epoch: 0, claimedAt: 0 });
  }

  /** Undefined for a statement on other tables. */
  execute(sql: string, params: readonly SqlValue[]): Row[] | undefined {
    const found = this.#acts.find(([start]) => sql.startsWith(start));
    return found?.[1](params);
  }

  /** Whether the row says that the node is alive. */
  isLive(id: string | null): boolean {
    const node = id === null ? undefined : this.nodes.get(id);
    const now = this.#options.now();
    if (!node || node.until <= now) return false;
    return node.renewedAt > now - TIMINGS.freeLockMs || this.#options.isLocked(node.id);
  }

  #removeDead(id: string, url: string): Row[] {
    const forgotten = this.#options.now() - FORGET_MS;
    for (const node of [...this.nodes.values()]) {
      const isUseless = node.url === url || node.until < forgotten;
      if (node.id !== id && isUseless && !this.isLive(node.id)) this.nodes.delete(node.id);
    }
    return [];
  }

  #remove(id: string): Row[] {
    this.nodes.delete(id);
    return [];
  }

  #join([id, url, version, leaving, controlNumber]: readonly SqlValue[]): Row[] {
    const others = [...this.nodes.values()].filter((node) => node.id !== id);
    if (others.some((node) => node.url === url)) throw new UniqueViolation(`URL ${url} is taken`);
    const now = this.#options.now();
    this.nodes.set(String(id), {
      ...{ id: String(id), url: String(url), version: Number(version), leaving: Number(leaving) },
      ...{ controlNumber: Number(controlNumber), renewedAt: now, until: now + TIMINGS.leaseMs },
    });
    return [{ now }];
  }

  #renew(id: string): Row[] {
    const node = this.nodes.get(id);
    if (!node) return [];
    node.renewedAt = this.#options.now();
    node.until = node.renewedAt + TIMINGS.leaseMs;
    return [{ now: node.renewedAt }];
  }

  #noteControl(controlNumber: number, id: SqlValue | undefined): Row[] {
    const node = this.nodes.get(String(id));
    if (node) node.controlNumber = controlNumber;
    return [];
  }

  #beginLeaving(id: string): Row[] {
    const node = this.nodes.get(id);
    if (node) node.leaving = 1;
    return [];
  }

  #listNodes(): Row[] {
    const sorted = [...this.nodes.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    return sorted.map(({ controlNumber, id, leaving, url, version }) => ({
      ...{ id, url, version, leaving, control_number: controlNumber },
      live: this.isLive(id) ? 1 : 0,
    }));
  }

  #find(id: number): Row[] {
    return this.shards.filter((shard) => shard.id === id).map(toRow);
  }

  #claim(me: string, id: number): Row[] {
    const shard = this.shards.find((each) => each.id === id);
    const node = this.nodes.get(me);
    if (!shard || !node || node.until <= this.#options.now()) return [];
    const { offeredTo, owner } = shard;
    const isFree = owner === null || owner === me || !this.isLive(owner);
    const heir = offeredTo === null ? undefined : this.nodes.get(offeredTo);
    const isOpen = offeredTo === null || heir?.leaving === 1 || !this.isLive(offeredTo);
    if (!isFree || (owner === null && offeredTo !== me && !isOpen)) return [];
    const isNew = owner !== me;
    Object.assign(shard, { owner: me, offeredTo: null, epoch: shard.epoch + 1 });
    if (isNew) shard.claimedAt = this.#options.now();
    return [toRow(shard)];
  }

  #offer([to, id, me]: readonly SqlValue[], { hasFailed }: { hasFailed: boolean }): Row[] {
    const shard = this.shards.find((each) => each.id === id);
    if (!shard || shard.owner !== me) return [];
    if (hasFailed) shard.failedOn = shard.owner;
    shard.owner = null;
    shard.offeredTo = to === null ? null : String(to);
    return [toRow(shard)];
  }
}

function toRow({ epoch, failedOn, id, offeredTo, owner }: ShardRecord): Row {
  return { id, owner, offered_to: offeredTo, failed_on: failedOn, epoch };
}
