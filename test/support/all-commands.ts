// Every command and group of commands.
import { listCommands } from '../../src/cli/command.ts';
import { backupCommand, restoreCommand } from '../../src/cli/commands/backup.ts';
import { createCompletionCommand } from '../../src/cli/commands/completion.ts';
import { conformanceCommands } from '../../src/cli/commands/conformance.ts';
import { doctorCommand } from '../../src/cli/commands/doctor.ts';
import { downCommand } from '../../src/cli/commands/down.ts';
import { healthCommand } from '../../src/cli/commands/health.ts';
import { initCommand } from '../../src/cli/commands/init.ts';
import { loginCommand, logoutCommand, profilesCommands } from '../../src/cli/commands/profiles.ts';
import { runCommand } from '../../src/cli/commands/run.ts';
import { serveCommand } from '../../src/cli/commands/serve.ts';
import { storeCommands } from '../../src/cli/commands/store.ts';
import { deployCommand, rollbackCommand } from '../../src/cli/deploy/deploy.ts';
import { diffCommand } from '../../src/cli/deploy/diff.ts';
import { devCommand } from '../../src/cli/dev/dev.ts';
import { endpointsCommands } from '../../src/cli/endpoints/endpoints.ts';
import { jobsCommands } from '../../src/cli/jobs/jobs.ts';
import { budgetsCommands } from '../../src/cli/resources/budgets.ts';
import { catalogCommands } from '../../src/cli/resources/catalog.ts';
import { keysCommands } from '../../src/cli/resources/keys.ts';
import { networkVolumesCommands } from '../../src/cli/resources/network-volumes.ts';
import { nodesCommands } from '../../src/cli/resources/nodes.ts';
import { podsCommands } from '../../src/cli/resources/pods.ts';
import { registriesCommands } from '../../src/cli/resources/registries.ts';
import { templatesCommands } from '../../src/cli/resources/templates.ts';
import { billingCommand, limitsCommand } from '../../src/cli/resources/usage.ts';
import { workerCommand } from '../../src/cli/worker/worker.ts';

export const groups = [
  catalogCommands,
  conformanceCommands,
  budgetsCommands,
  endpointsCommands,
  jobsCommands,
  keysCommands,
  networkVolumesCommands,
  nodesCommands,
  podsCommands,
  profilesCommands,
  registriesCommands,
  storeCommands,
  templatesCommands,
];

export const commands = [
  deployCommand,
  createCompletionCommand({}),
  devCommand,
  diffCommand,
  doctorCommand,
  backupCommand,
  restoreCommand,
  downCommand,
  healthCommand,
  initCommand,
  billingCommand,
  limitsCommand,
  loginCommand,
  logoutCommand,
  rollbackCommand,
  runCommand,
  serveCommand,
  workerCommand,
  ...groups.flatMap(listCommands),
];
