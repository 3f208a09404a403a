// The images that the kubelet stand-in knows: their entry points, and why others cannot be pulled.
import { z } from 'zod';

const dockerConfigSchema = z.looseObject({
  auths: z.record(
    z.string(),
    z.looseObject({ username: z.string().optional(), password: z.string().optional() }),
  ),
});

/** Of a registry with logins, `HOST/private/…`. */
export const REGISTRY_LOGIN = { username: 'puller', password: 'secret of the registry' };

export class Images {
  /** `none`: the arguments are a command of this machine. */
  readonly #entryPoints = new Map<string, readonly string[]>([['none', []]]);

  readonly #variables = new Map<string, Readonly<Record<string, string>>>();

  /** Program and arguments before those of the container, and the image's own variables. */
  set(
    image: string,
    entryPoint: readonly string[],
    variables: Readonly<Record<string, string>> = {},
  ): void {
    this.#entryPoints.set(image, entryPoint);
    this.#variables.set(image, variables);
  }

  env(image: string): Readonly<Record<string, string>> {
    return this.#variables.get(image) ?? {};
  }

  entryPoint(image: string): readonly string[] {
    return this.#entryPoints.get(image) ?? [];
  }

  /** `logins`: the content of `.dockerconfigjson` Secrets. @returns why the image cannot be pulled */
  findTrouble(image: string, logins: readonly string[]): string | undefined {
    const failed = `failed to pull and unpack image "${image}": failed to resolve reference`;
    if (image.endsWith(':missing')) return `rpc error: ${failed}: ${image}: not found`;
    const [host = '', kind] = image.split('/');
    const isAllowed = logins.some((text) => {
      const login = dockerConfigSchema.parse(JSON.parse(text)).auths[host];
      const { password, username } = REGISTRY_LOGIN;
      return login?.username === username && login.password === password;
    });
    if (kind !== 'private' || isAllowed) return undefined;
    return `rpc error: ${failed}: authorization failed: 401 Unauthorized`;
  }
}
