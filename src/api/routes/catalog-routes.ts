// GET /v2/catalog: what can be had, what it costs, and how much of it is free.
import type { FastifyInstance } from 'fastify';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { describeNext, readPage } from '../http/paging.ts';
import type { QueryValues } from '../http/query.ts';
import { sendJson } from './job-routes.ts';

interface CatalogRoute {
  Querystring: QueryValues;
}

export interface CatalogRoutesOptions {
  catalog: Catalog;
  /** UUIDs of the GPUs that pods hold. */
  heldGpus: () => ReadonlySet<string>;
}

export function addCatalogRoutes(
  app: FastifyInstance,
  { catalog, heldGpus }: CatalogRoutesOptions,
): void {
  const options = { config: { access: 'endpoints:read' } } as const;

  app.get<CatalogRoute>(resourceRoutes.gpus, options, async (request, reply) => {
    const { gpus, next } = catalog.listGpus(readPage(request), heldGpus());
    return sendJson(reply, { gpus, ...describeNext(next) });
  });

  app.get<CatalogRoute>(resourceRoutes.cpus, options, async (request, reply) => {
    const { cpus, next } = catalog.listCpus(readPage(request));
    return sendJson(reply, { cpus, ...describeNext(next) });
  });
}
