// `millrace endpoints delete`: deletes an endpoint, and the template that `millrace deploy` made for it.
import type { ApiCaller } from '../../client/api-caller.ts';
import { connectEndpoints } from '../../client/endpoints.ts';
import { connectResources } from '../../client/resource-calls.ts';
import { ApiError } from '../../client.ts';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { TemplateRecord } from '../../wire/resources/template.ts';
import { confirm, yesOption } from '../prompt.ts';
import { type ApiRequest, defineApiVerb } from '../resources/api-verb.ts';

/** `millrace deploy` creates the endpoint right after its template, ms. */
const MADE_WITHIN_MS = 60_000;
const FORBIDDEN = 403;
const NOT_FOUND = 404;
/** Another endpoint uses the template. */
const CONFLICT = 409;

const options = { yes: yesOption };

export const deletionVerb = defineApiVerb({
  summary: 'deletes one endpoint with its workers, jobs and logs',
  description: [
    'Also deletes the template that `millrace deploy` made for the endpoint, unless another endpoint uses it.',
  ],
  id: 'endpoint ID or name',
  options,
  examples: ['millrace endpoints delete echo', 'millrace endpoints delete echo --yes'],
  act: deleteEndpoint,
});

async function deleteEndpoint(request: ApiRequest<typeof options>): Promise<string> {
  const { caller, id, json, values } = request;
  const template = await findOwnTemplate(caller, id);
  const also = template ? `, and the template ${template.name} that deploy made for it` : '';
  await confirm(`Delete endpoint ${id} with its workers, jobs and logs${also}?`, values);
  await connectEndpoints(caller).delete(id);
  const removed = template && (await removeTemplate(caller, template.id)) ? template.id : undefined;
  if (json) {
    return JSON.stringify({ id, deleted: true, ...(removed && { templateId: removed }) });
  }
  return removed ? `${id}  deleted\n${removed}  deleted` : `${id}  deleted`;
}

/** Undefined if a person made the template, or if the key cannot read it: then it stays. */
async function findOwnTemplate(caller: ApiCaller, id: string): Promise<TemplateRecord | undefined> {
  const endpoint = await ignoring([FORBIDDEN], () => connectEndpoints(caller).get(id));
  const { templateId } = endpoint ?? {};
  if (!endpoint || !templateId) return undefined;
  const template = await ignoring([FORBIDDEN, NOT_FOUND], () =>
    connectResources(caller, 'templates').get(templateId),
  );
  return template && isMadeByDeploy(endpoint, template) ? template : undefined;
}

function isMadeByDeploy(endpoint: EndpointRecord, template: TemplateRecord): boolean {
  const afterMs = Date.parse(endpoint.createdAt) - Date.parse(template.createdAt);
  return (
    endpoint.source === 'VERSION' &&
    template.name === endpoint.name &&
    template.handler === null &&
    afterMs >= 0 &&
    afterMs <= MADE_WITHIN_MS
  );
}

async function removeTemplate(caller: ApiCaller, id: string): Promise<boolean> {
  const removed = await ignoring([FORBIDDEN, NOT_FOUND, CONFLICT], async () => {
    await connectResources(caller, 'templates').delete(id);
    return true;
  });
  return removed ?? false;
}

async function ignoring<T>(
  statuses: readonly number[],
  call: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof ApiError && statuses.includes(error.status)) return undefined;
    throw error;
  }
}
