import { describe, expect, it } from 'vitest';
import { DockerError } from '../../../../src/engine/docker/docker-client.ts';
import {
  isAboutDiskSize,
  isNameTaken,
  judgePull,
  judgeRefusal,
} from '../../../../src/engine/docker/engine-refusals.ts';

const COMMAND_OF_DOCKER =
  'OCI runtime create failed: runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown';
const COMMAND_OF_PODMAN =
  'crun: executable file `nope` not found in $PATH: No such file or directory: OCI runtime attempted to invoke a command that was not found';

describe('an engine that does not start a container', () => {
  it.each([
    ['an invalid request', 400, 'Duplicate mount point: /m', null],
    ['an unknown command, in Docker', 400, COMMAND_OF_DOCKER, 127],
    ['an unknown command, in podman', 500, COMMAND_OF_PODMAN, 0],
    ['a command that is not executable', 500, 'no words for it', 126],
    ['GPUs on an engine without', 500, 'could not select device driver "nvidia"', 128],
    ['a GPU that CDI does not know', 500, 'CDI device injection failed: unresolvable', 128],
  ])('is not retried: %s', (_what, status, message, code) => {
    expect(judgeRefusal(new DockerError(status, message), code)).toMatchObject({
      code: 'refused',
      message,
    });
  });

  it.each([
    ['a port that was taken meanwhile', 500, 'listen tcp4 127.0.0.1:80: address already in use'],
    ['a network that was removed meanwhile', 404, 'network millrace-apart not found'],
    ['a network whose name has a twin', 400, 'network a is ambiguous (2 matches found on name)'],
    ['a volume that is not mounted yet', 400, 'bind source path does not exist: /mnt/data'],
    ['an internal error', 500, 'context deadline exceeded'],
    ['a name that is not free yet', 409, 'Conflict. The name is already in use by container "x"'],
  ])('is retried: %s', (_what, status, message) => {
    const judged = judgeRefusal(new DockerError(status, message), null);
    expect(judged).toMatchObject({ code: 'unavailable', message });
  });
});

describe('an image that is not available', () => {
  it.each([
    'manifest for 127.0.0.1:5000/thing:9 not found: manifest unknown: unknown',
    'pull access denied for thing, repository does not exist or may require docker login',
    'Head "https://ghcr.io/v2/thing/manifests/1": unauthorized: authentication required',
    'Head "http://127.0.0.1:5999/v2/a/b/manifests/1": no basic auth credentials',
    'no matching manifest for linux/arm64/v8 in the manifest list entries',
  ])('is not pulled again: %s', (message) => {
    expect(judgePull('thing:9', message)).toMatchObject({ code: 'refused' });
  });

  it.each([
    'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host',
    'Get "http://localhost:9/v2/": dial tcp 127.0.0.1:9: connect: connection refused',
    'toomanyrequests: You have reached your pull rate limit',
    'net/http: TLS handshake timeout',
    'write /var/lib/docker/tmp/x: no space left on device',
  ])('is pulled again: %s', (message) => {
    expect(judgePull('thing:9', message)).toMatchObject({ code: 'unavailable' });
  });
});

describe('common engine messages', () => {
  it.each([
    'Conflict. The container name "/a" is already in use by container "b"',
    'creating container storage: the container name "a" is already in use by b',
    'network with name a already exists',
    'network name a already used: network already exists',
  ])('report a taken name: %s', (message) => {
    expect(isNameTaken(new DockerError(500, message))).toBe(true);
  });

  it.each([
    "--storage-opt is supported only for overlay over xfs with 'pquota' mount option",
    'the storage-opt option is not supported with this driver',
  ])('report that disks cannot be limited: %s', (message) => {
    expect(isAboutDiskSize(new DockerError(500, message))).toBe(true);
  });
});
