// Options and exit codes of the commands that deploy a version.
import { EXIT, type ExitCode } from '../command.ts';
import { flag, integer, text } from '../options.ts';

export const nameOption = text({
  placeholder: 'NAME',
  help: "name of the endpoint, lower-case letters, digits and hyphens; default: the name in package.json, else the handler file's",
});

export const rolloutOptions = {
  timeout: integer({
    ...{ min: 5, max: 3_600, placeholder: 'S' },
    help: 'time for the first worker to install the version and load the handler, s; default: 600',
  }),
  noFollow: flag({ help: 'do not wait for the rollout' }),
  json: flag({ help: 'print the result as one line of JSON' }),
};

export const DEPLOY_EXIT_CODES: readonly ExitCode[] = [
  { code: EXIT.ok, meaning: 'the version is running; with --no-follow, its rollout has started' },
  {
    code: EXIT.failed,
    meaning:
      'the files break a limit, the platform refused a request or did not respond, or it was superseded by another deployment',
  },
  { code: EXIT.usage, meaning: 'wrong usage' },
  { code: EXIT.notLoaded, meaning: 'the handler does not load; the earlier version keeps running' },
  { code: EXIT.interrupted, meaning: 'interrupted by a signal; the rollout continues' },
];
