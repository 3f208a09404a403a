// Options that choose the engine for pods and workers of endpoints.
import { choice, flag, text } from '../options.ts';
import { containmentOptions } from './containment-options.ts';
import { kubernetesOptions } from './kubernetes-options.ts';

const podUserOption = text({
  placeholder: 'USER',
  env: 'MILLRACE_POD_USER',
  help: '--engine process: system user of pods if the platform runs as root: a name or UID[:GID]; default: the user "nobody" if that user can reach --data and this program, else root',
});

export const engineOptions = {
  engine: choice({
    choices: ['process', 'docker', 'kubernetes', 'none'],
    default: 'process',
    env: 'MILLRACE_ENGINE',
    help: 'engine that runs pods and the workers of endpoints; process: processes of this machine; kubernetes: Pods of a cluster; none: no pods',
  }),
  dockerHost: text({
    placeholder: 'URL',
    env: 'DOCKER_HOST',
    help: '--engine docker: address of the engine, unix:///path or tcp://host:port; default: the local socket',
  }),
  trustUsers: flag({
    env: 'MILLRACE_TRUST_USERS',
    help: "--engine process: let every user run pods, not only the user owner; all pods share one UID and can read each other's files",
  }),
  trustKeys: flag({
    env: 'MILLRACE_TRUST_KEYS',
    help:
      '--engine process: let keys without the scope admin use pods:write and endpoints:write; without --pod-user ' +
      "their pods run as the platform's user and can read every key",
  }),
  podUser: podUserOption,
  ...containmentOptions,
  ...kubernetesOptions,
  workerUrl: text({
    placeholder: 'URL',
    env: 'MILLRACE_WORKER_URL',
    help: 'URL at which the workers of endpoints reach the platform; --engine kubernetes needs it; default: the printed URL; in containers http://host.docker.internal:<port>, unless --host is another address of this machine',
  }),
  workerListener: choice({
    choices: ['bridge', 'none'],
    default: 'bridge',
    env: 'MILLRACE_WORKER_LISTENER',
    section: 'advanced',
    help: "--engine docker with a loopback --host: also listen on the address of Docker's bridge, which containers on this machine call; none: do not",
  }),
} as const;
