// Routes about the platform itself: health, readiness, metrics, the OpenAPI document, the catalog of its machines,
// and its nodes.
import type { Clock } from '../../base/clock.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { SYSTEM_OPERATIONS } from '../../wire/operations/operations.ts';
import { ProblemError } from '../../wire/problem.ts';
import { CATALOG_OPERATIONS } from '../../wire/resources/catalog.ts';
import { NODE_OPERATIONS, type NodeList, type NodeRecord } from '../../wire/resources/nodes.ts';
import { requireOwner } from '../http/auth.ts';
import { sendBytes, sendJson } from '../http/byte-reply.ts';
import { describeNext, readPageRequest } from '../http/requests.ts';
import type { ApiMetrics } from '../metrics/metrics.ts';
import type { StoreStatus } from '../metrics/store-status.ts';
import { handleOpenApi } from '../openapi/openapi.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

const METRICS_MEDIA_TYPE = 'text/plain; version=0.0.4; charset=utf-8';
const NOT_READY_RETRY_MS = 1_000;

export interface SystemRoutesOptions {
  endpoints: Endpoints;
  metrics: ApiMetrics;
  version: string;
  isReady: () => boolean;
  /** Clients shall leave; requests are still served. */
  isShuttingDown: () => boolean;
  store: StoreStatus;
}

/**
 * `/healthz` and `/readyz` are open. `/metrics` shows the endpoints of all users and their load. It
 * requires a key of `owner` with `jobs:read` for all endpoints; where clients need no key, it needs
 * none.
 */
export function bindSystem(options: SystemRoutesOptions): BoundOperation[] {
  const { endpoints, isReady, isShuttingDown, metrics, store, version } = options;
  return bindOperations(SYSTEM_OPERATIONS, {
    getHealth: async (_request, reply) => sendJson(reply, { status: 'ok', version }),
    getReadiness: async (_request, reply) => {
      if (!isReady()) {
        throw new ProblemError('unavailable', 'the platform is starting', {
          retryAfterMs: NOT_READY_RETRY_MS,
        });
      }
      if (isShuttingDown()) {
        throw new ProblemError('unavailable', 'the platform is stopping', {
          retryAfterMs: NOT_READY_RETRY_MS,
        });
      }
      await readStore(endpoints, store);
      const fault = await store.findFault();
      if (fault !== undefined) {
        throw new ProblemError('unavailable', fault, { retryAfterMs: NOT_READY_RETRY_MS });
      }
      const { warnings } = store;
      const attention = warnings.length > 0 && { warnings };
      return sendJson(reply, { status: 'ready', version, ...attention });
    },
    getMetrics: async ({ holder }, reply) => {
      requireOwner(holder);
      const pieces = [Buffer.from(await metrics.collect())];
      return sendBytes(reply, { mediaType: METRICS_MEDIA_TYPE, pieces });
    },
    getOpenApi: handleOpenApi(version),
    callMcp: async (request, reply) => {
      const { serveMcp } = await import('../mcp/mcp-route.ts');
      return serveMcp(request, reply, options);
    },
  });
}

/** @throws ProblemError `unavailable` for every failure of the store */
async function readStore(endpoints: Endpoints, store: StoreStatus): Promise<void> {
  try {
    await endpoints.checkStore();
  } catch (cause) {
    const fault = await store.findFault();
    throw new ProblemError('unavailable', fault ?? 'the store does not answer', {
      retryAfterMs: NOT_READY_RETRY_MS,
      cause,
    });
  }
}

export interface CatalogServices {
  catalog: Catalog;
  /** UUIDs of the GPUs that pods hold. */
  heldGpus: () => ReadonlySet<string>;
  /** What runs pods; null: nothing. */
  engine: Parameters<Catalog['listDataCenters']>[1];
}

export function bindCatalog({ catalog, engine, heldGpus }: CatalogServices): BoundOperation[] {
  return bindOperations(CATALOG_OPERATIONS, {
    listGpuTypes: async (request, reply) => {
      const { gpus, next } = catalog.listGpus(readPageRequest(request), heldGpus());
      return sendJson(reply, { gpus, ...describeNext(next) });
    },
    listCpuFlavors: async (request, reply) => {
      const { cpus, next } = catalog.listCpus(readPageRequest(request));
      return sendJson(reply, { cpus, ...describeNext(next) });
    },
    listDataCenters: async (request, reply) => {
      const page = catalog.listDataCenters(readPageRequest(request), engine);
      const { dataCenters, next } = page;
      return sendJson(reply, { dataCenters, ...describeNext(next) });
    },
  });
}

export interface NodeRoutesOptions {
  clock: Clock;
  listNodes: () => Promise<NodeRecord[]>;
}

/** Nodes show URLs and machines, which concern nobody but the operator. */
export function bindNodes({ clock, listNodes }: NodeRoutesOptions): BoundOperation[] {
  return bindOperations(NODE_OPERATIONS, {
    getNodes: async ({ holder }, reply) => {
      requireOwner(holder);
      const list: NodeList = { at: clock.now(), nodes: await listNodes() };
      return sendJson(reply, list);
    },
  });
}
