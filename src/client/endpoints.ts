// Client of endpoints and their scaling decisions. client.ts has their jobs.
import type { EndpointRecord } from '../wire/resources/endpoint.ts';
import type { DecisionRecord } from '../wire/resources/scaling.ts';
import type { VersionRecord } from '../wire/resources/version.ts';
import { fillPath } from '../wire/routes/route.ts';
import { SCALER_ROUTES, VERSION_ROUTES } from '../wire/routes/routes.ts';
import { type ApiCaller, callOf } from './api-caller.ts';
import {
  connectList,
  connectResources,
  type EndpointChange,
  type Listed,
  type NewEndpoint,
  type ResourceOptions,
  type Resources,
} from './resource-calls.ts';

export interface EndpointsClient extends Resources<EndpointRecord, NewEndpoint, EndpointChange> {
  /** Returns the last scaling decisions. */
  decisions(id: string): Listed<DecisionRecord>;
  /** Versions of the endpoint's handler. */
  versions(id: string): VersionsClient;
}

export function connectEndpoints(caller: ApiCaller): EndpointsClient {
  return {
    ...connectResources(caller, 'endpoints'),
    decisions: (endpoint) =>
      connectList({
        caller,
        path: fillPath(SCALER_ROUTES.listScalerDecisions, { endpoint }),
        member: 'decisions',
      }),
    versions: (endpoint) => connectVersions(caller, endpoint),
  };
}

/** A tar.gz of the handler's project. */
export interface NewVersion {
  archive: Uint8Array;
  /** Path of the handler in the archive: `handler.ts`. */
  entry: string;
  /** Hash of the archive, hex. The platform refuses another archive. */
  sha256?: string | undefined;
  /** What is new, for people; 1 to 1,000 characters. */
  message?: string | undefined;
}

export interface DeployOptions extends ResourceOptions {
  /** Seconds that the first worker has to install and load the version, 5 to 3,600. Default 600. */
  timeout?: number | undefined;
}

export interface UploadOptions extends ResourceOptions {
  /** Called with the number of bytes sent so far. */
  onSent?: ((bytes: number) => void) | undefined;
}

export interface VersionsClient extends Listed<VersionRecord> {
  get(version: number, options?: ResourceOptions): Promise<VersionRecord>;
  /** Stores a new version, which does not run before it is deployed. */
  upload(version: NewVersion, options?: UploadOptions): Promise<VersionRecord>;
  /** Downloads the archive. */
  archive(version: number, options?: ResourceOptions): Promise<Uint8Array>;
  /** Starts the rollout; `rollout` of the endpoint has its state. */
  deploy(version: number, options?: DeployOptions): Promise<EndpointRecord>;
  /** Deletes a version that is neither running nor being deployed. */
  remove(version: number, options?: ResourceOptions): Promise<void>;
}

const GZIP_TYPE = 'application/gzip';

function connectVersions(caller: ApiCaller, endpoint: string): VersionsClient {
  const of = (version: number) => ({ endpoint, version: String(version) });
  return {
    ...connectList<VersionRecord>({
      caller,
      path: fillPath(VERSION_ROUTES.listVersions, { endpoint }),
      member: 'versions',
    }),
    get: (version, { signal } = {}) =>
      caller.json({ ...callOf(VERSION_ROUTES.getVersion, of(version)), signal }),
    upload: ({ archive, entry, message, sha256 }, { onSent, signal } = {}) =>
      caller.json({
        ...callOf(VERSION_ROUTES.uploadVersion, { endpoint }),
        query: { entry, sha256, message },
        content: { bytes: archive, type: GZIP_TYPE, onSent },
        // Without an answer, the version may exist already.
        repeatable: false,
        signal,
      }),
    archive: (version, { signal } = {}) =>
      caller.bytes({
        ...callOf(VERSION_ROUTES.getVersionArchive, of(version)),
        headers: { accept: GZIP_TYPE },
        signal,
      }),
    deploy: (version, { signal, timeout } = {}) =>
      caller.json({
        ...callOf(VERSION_ROUTES.deployVersion, of(version)),
        body: { timeout },
        repeatable: false,
        signal,
      }),
    remove: async (version, { signal } = {}) => {
      await caller.answer({
        ...callOf(VERSION_ROUTES.removeVersion, of(version)),
        repeatable: false,
        signal,
      });
    },
  };
}
