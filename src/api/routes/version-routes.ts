// Serves the versions of endpoints' handlers: uploads, lists, downloads, deployments.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { VersionRequest, Versions } from '../../control/versions/versions.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  FETCH_VERSION_OPERATIONS,
  GZIP_TYPE,
  handlerEntry,
  sha256,
  VERSION_OPERATIONS,
  type VersionRecord,
  versionDeployment,
  versionMessage,
} from '../../wire/resources/version.ts';
import { fillPath, type PathParameters } from '../../wire/routes/route.ts';
import { ARCHIVE_HEADERS, VERSION_ROUTES } from '../../wire/routes/routes.ts';
import { check } from '../body/body.ts';
import { useBody } from '../body/body-reader.ts';
import { LOCAL_HOLDER } from '../http/auth.ts';
import { sendJson, sendLoaded } from '../http/byte-reply.ts';
import {
  describeNext,
  readPageRequest,
  readResourceBody,
  readText,
  refuseParameter,
  requireHolder,
} from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

const NO_BYTES = new Uint8Array();

export function bindVersions(versions: Versions): BoundOperation[] {
  const verbs = bindOperations(VERSION_OPERATIONS, {
    listVersions: async (request, reply) => {
      const { userId } = requireHolder(request);
      const listing = { endpointId: request.params.endpoint, ...readPageRequest(request) };
      const { next, records } = await versions.list(userId, listing);
      return sendJson(reply, { versions: records, ...describeNext(next) });
    },
    uploadVersion: async (request, reply) => {
      const { keyId, userId } = requireHolder(request);
      const { body = NO_BYTES, params, query } = request;
      const entry = readText(query, 'entry');
      if (entry === undefined) throw refuseParameter('entry', 'must be the path of the handler');
      const hash = readText(query, 'sha256');
      const message = readText(query, 'message');
      checkParameter('entry', entry, handlerEntry);
      if (hash !== undefined) checkParameter('sha256', hash, sha256);
      if (message !== undefined) checkParameter('message', message, versionMessage);
      const upload = {
        userId,
        endpointId: params.endpoint,
        archive: body,
        entry,
        sha256: hash,
        message,
        keyId: keyId === LOCAL_HOLDER.keyId ? null : keyId,
      };
      // It waits for other uploads with up to 50 MB, also after its client has disconnected.
      const version = await useBody(request, () => versions.upload(upload));
      const place = { endpoint: version.endpointId, version: String(version.version) };
      reply.code(201).header('location', fillPath(VERSION_ROUTES.getVersion, place));
      return sendJson(reply, version);
    },
    getVersion: async (request, reply) => sendJson(reply, await versions.get(readRequest(request))),
    getVersionArchive: async (request, reply) => {
      return sendArchive(reply, versions, await versions.get(readRequest(request)));
    },
    deployVersion: async (request, reply) => {
      const { body } = request;
      const { timeout } = body?.length
        ? readResourceBody(body, versionDeployment)
        : check({}, versionDeployment);
      const wanted = readRequest(request);
      return sendJson(reply, await versions.deploy(wanted, timeout * 1_000));
    },
    removeVersion: async (request, reply) => {
      await versions.remove(readRequest(request));
      return reply.code(204).send();
    },
  });
  const fetching = bindOperations(FETCH_VERSION_OPERATIONS, {
    fetchVersion: async (request, reply) => {
      const version = await versions.get(readRequest(request));
      const kept = request.headers['if-none-match']?.split(',') ?? [];
      const isKept = kept.some((tag) => tag.trim() === `"${version.sha256}"`);
      if (!isKept) return sendArchive(reply, versions, version);
      return describeArchive(reply, version).code(304).send();
    },
  });
  return [...verbs, ...fetching];
}

/** In headers, so that a worker needs one request. */
function describeArchive(
  reply: FastifyReply,
  { entry, sha256: hash }: VersionRecord,
): FastifyReply {
  reply.header(ARCHIVE_HEADERS.entry, encodeURIComponent(entry));
  return reply.header(ARCHIVE_HEADERS.sha256, hash);
}

function sendArchive(
  reply: FastifyReply,
  versions: Versions,
  version: VersionRecord,
): Promise<FastifyReply> {
  const { bytes } = version;
  describeArchive(reply, version);
  return sendLoaded(reply, {
    measure: async () => bytes,
    load: async () => ({ mediaType: GZIP_TYPE, pieces: await versions.read(version) }),
  });
}

type VersionPath = PathParameters<(typeof VERSION_ROUTES)['getVersion']['path']>;

/** @throws ProblemError `not_found` */
function readRequest(request: {
  holder: FastifyRequest['holder'];
  params: VersionPath;
}): VersionRequest {
  const { endpoint: endpointId, version: text } = request.params;
  const { userId } = requireHolder(request);
  const version = /^[1-9]\d{0,8}$/.test(text) ? Number(text) : 0;
  if (version > 0) return { userId, endpointId, version };
  const detail = `${JSON.stringify(text.slice(0, 100))} is not the number of a version`;
  throw new ProblemError('not_found', detail);
}

/** @throws ProblemError `invalid` */
function checkParameter(name: string, value: string, schema: z.ZodType): void {
  const checked = schema.safeParse(value);
  if (checked.success) return;
  throw refuseParameter(name, checked.error.issues[0]?.message ?? 'is invalid');
}
