// /v1/templates: each user's own, made, listed, changed, removed.
import type { FastifyInstance } from 'fastify';
import type { Templates } from '../../control/endpoints/templates.ts';
import { templateCreation, templateUpdate } from '../../wire/resources/template.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { checkNoBody } from '../http/body.ts';
import { describeNext, readPage } from '../http/paging.ts';
import type { QueryValues } from '../http/query.ts';
import { RESOURCE_BODY_BYTES, readResource, readUser } from '../http/resource-requests.ts';
import { NO_BODY_BYTES, sendJson } from './job-routes.ts';

interface TemplatesRoute {
  Querystring: QueryValues;
  Body: Buffer | undefined;
}

interface TemplateRoute extends TemplatesRoute {
  Params: { template: string };
}

export interface TemplateRoutesOptions {
  templates: Templates;
}

/** `app` has to give bodies as Buffers, of no other media type than application/json. */
export function addTemplateBodyRoutes(
  app: FastifyInstance,
  { templates }: TemplateRoutesOptions,
): void {
  const options = {
    bodyLimit: RESOURCE_BODY_BYTES,
    config: { access: 'endpoints:write' },
  } as const;

  app.post<TemplatesRoute>(resourceRoutes.templates, options, async (request, reply) => {
    const creation = readResource(request.body, templateCreation);
    const template = await templates.create(readUser(request), creation);
    reply.code(201).header('location', resourceRoutes.template(template.id));
    return sendJson(reply, template);
  });

  app.patch<TemplateRoute>(
    resourceRoutes.template(':template'),
    options,
    async (request, reply) => {
      const update = readResource(request.body, templateUpdate);
      const { template: id } = request.params;
      return sendJson(reply, await templates.update(readUser(request), id, update));
    },
  );
}

/** `app` has to give bodies as Buffers, of whatever media type. */
export function addTemplateRoutes(
  app: FastifyInstance,
  { templates }: TemplateRoutesOptions,
): void {
  app.get<TemplatesRoute>(
    resourceRoutes.templates,
    { config: { access: 'endpoints:read' } },
    async (request, reply) => {
      const listing = { userId: readUser(request), ...readPage(request) };
      const { next, templates: page } = templates.list(listing);
      return sendJson(reply, { templates: page, ...describeNext(next) });
    },
  );

  app.get<TemplateRoute>(
    resourceRoutes.template(':template'),
    { config: { access: 'endpoints:read' } },
    async (request, reply) =>
      sendJson(reply, templates.get(readUser(request), request.params.template)),
  );

  app.delete<TemplateRoute>(
    resourceRoutes.template(':template'),
    { bodyLimit: NO_BODY_BYTES, config: { access: 'endpoints:write' } },
    async (request, reply) => {
      checkNoBody(request.body);
      await templates.remove(readUser(request), request.params.template);
      return reply.code(204).send();
    },
  );
}
