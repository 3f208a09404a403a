// Serves two read-only lists: the catalog, and the last scaling decisions of an endpoint.
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Decisions } from '../../control/scaling/decisions.ts';
import { CATALOG_OPERATIONS } from '../../wire/resources/catalog.ts';
import { SCALER_OPERATIONS } from '../../wire/resources/scaling.ts';
import { sendJson } from '../http/byte-reply.ts';
import { describeNext, readPageRequest, readUser } from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

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

export interface ScalerServices {
  decisions: Pick<Decisions, 'list'>;
  endpoints: Pick<Endpoints, 'get'>;
}

export function bindScaler({ decisions, endpoints }: ScalerServices): BoundOperation[] {
  return bindOperations(SCALER_OPERATIONS, {
    listScalerDecisions: async (request, reply) => {
      const { endpoint: endpointId } = request.params;
      endpoints.get(readUser(request), endpointId);
      const page = await decisions.list({ endpointId, ...readPageRequest(request) });
      return sendJson(reply, { decisions: page.decisions, ...describeNext(page.next) });
    },
  });
}
