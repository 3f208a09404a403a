// Options of `--engine kubernetes`.
import {
  checkKubernetesLogin,
  type KubernetesChoice,
  listKubernetesDevices,
  readKubernetesSettings,
} from '../../platform/files/kubernetes-file.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { inheritEnvironment } from '../config.ts';
import { type OptionValues, text } from '../options.ts';

export const kubernetesOptions = {
  kubeconfig: text({
    placeholder: 'PATH',
    env: 'KUBECONFIG',
    help: '--engine kubernetes: kubeconfig file, such as ~/.kube/config; default: the service account of the Pod in which the platform runs',
  }),
  kubeNamespace: text({
    placeholder: 'NAME',
    env: 'MILLRACE_KUBE_NAMESPACE',
    help: "--engine kubernetes: namespace of the pods; default: that of the kubeconfig's context, or of the platform's own Pod",
  }),
  kubeSettings: text({
    placeholder: 'PATH',
    env: 'MILLRACE_KUBE_SETTINGS',
    help: '--engine kubernetes: JSON file with GPUs, node selectors, tolerations, storage classes and labels; docs/kubernetes.md lists them',
  }),
} as const;

/** Undefined for another engine. @throws PlatformOptionError */
export function readKubernetes(
  values: { engine: string } & OptionValues<typeof kubernetesOptions>,
): (KubernetesChoice & { devices: Device[] }) | undefined {
  if (values.engine !== 'kubernetes') return undefined;
  const settings = readKubernetesSettings(values.kubeSettings);
  const devices = listKubernetesDevices(settings);
  const { kubeconfig, kubeNamespace: namespace } = values;
  checkKubernetesLogin(kubeconfig);
  return { kubeconfig, namespace, environment: inheritEnvironment({}), settings, devices };
}
