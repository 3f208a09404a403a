// Keeps the JSON Schema of the inputs of each endpoint, as its workers send it: the last one of each version of the
// handler. A schema is data of a worker; nothing here acts on it.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Store, Transaction } from '../store/store.ts';
import type { WorkerHello } from '../wire/link/worker-link.ts';
import type { InputSchemaRecord } from '../wire/resources/endpoint.ts';
import { readEndpoint } from './endpoint-removal.ts';

const KIND = 'input_schema';
/** Versions of an endpoint whose schemas are kept. */
const KEPT = 20;
/** Position of the schema of workers without a version; versions count from 1. */
const NO_VERSION = 0;

const storedSchema = z.object({ updatedAt: z.int(), text: z.string() });

type Greeting = Pick<WorkerHello, 'inputSchema' | 'handlerVersion'>;

export class InputSchemas {
  readonly #store: Store;
  /** Digest of the schema that the store has, by endpoint: most workers of an endpoint send the same. */
  readonly #known = new Map<string, string>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Returns nothing to write if a worker of the endpoint has sent the same before; otherwise what to write. */
  compare(endpointId: string, greeting: Greeting): SchemaChange | undefined {
    const { handlerVersion: version = NO_VERSION, inputSchema: text } = greeting;
    if (text === undefined) return undefined;
    const digest = createHash('sha256').update(`${version} ${text}`).digest('base64url');
    if (this.#known.get(endpointId) === digest) return undefined;
    return { endpointId, version, text, digest };
  }

  /** Call this after the change is stored. */
  note({ digest, endpointId }: SchemaChange): void {
    this.#known.set(endpointId, digest);
  }

  forgetEndpoint(endpointId: string): void {
    this.#known.delete(endpointId);
  }

  /** @throws ProblemError `not_found` for an unknown endpoint */
  async read(endpointId: string): Promise<InputSchemaRecord> {
    const { row, version } = await this.#store.read((tx) => {
      const { deployment } = readEndpoint(tx, endpointId);
      const deployed = deployment?.version;
      const id = nameRow(endpointId, deployed ?? NO_VERSION);
      return { row: tx.resource({ kind: KIND, id }), version: deployed ?? null };
    });
    if (!row) return { schema: null, version, updatedAt: null };
    const { text, updatedAt } = storedSchema.parse(JSON.parse(row.body));
    return { schema: JSON.parse(text), version, updatedAt };
  }
}

export interface SchemaChange {
  endpointId: string;
  version: number;
  /** JSON text; empty: the handler has none. */
  text: string;
  digest: string;
}

/** Writes a row only if the schema differs from the stored one. */
export function putInputSchema(
  tx: Transaction,
  { endpointId, text, version }: SchemaChange,
  now: number,
): void {
  const endpoint = tx.endpoint(endpointId);
  if (!endpoint) return;
  const id = nameRow(endpointId, version);
  const known = tx.resource({ kind: KIND, id });
  if (text === '') {
    if (known) tx.removeResource({ kind: KIND, id });
    return;
  }
  if (known && storedSchema.parse(JSON.parse(known.body)).text === text) return;
  const body = JSON.stringify({ updatedAt: now, text });
  const { userId } = endpoint;
  if (!known) makeRoom(tx, endpointId);
  tx.putResource({ kind: KIND, id, userId, parent: endpointId, position: version, body });
}

/** Removes the oldest row if the endpoint has KEPT of them. */
function makeRoom(tx: Transaction, parent: string): void {
  const rows = tx.resources({ kind: KIND, parent, limit: KEPT });
  const oldest = rows.filter(({ position }) => position !== NO_VERSION).at(-1);
  if (rows.length === KEPT && oldest) tx.removeResource({ kind: KIND, id: oldest.id });
}

function nameRow(endpointId: string, version: number): string {
  return version === NO_VERSION ? endpointId : `${endpointId}/${version}`;
}
