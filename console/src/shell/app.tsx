// The frame around every page: session, navigation, and the bar that shows a lost platform.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Problem } from '../parts/problem.tsx';
import { useStore } from '../parts/store.ts';
import { connection } from '../platform/connection.ts';
import { asError } from '../platform/polling.ts';
import { type Session, sessionState } from '../platform/session.ts';
import { readSession } from '../platform/sign-in.ts';
import { followLinks, place } from '../routing/location.ts';
import { findRoute, type PageProps, type PageRoute } from '../routing/routes.ts';
import { Navigation } from './navigation.tsx';
import { listenForKeys } from './shortcuts.ts';
import { SignInPage } from './sign-in-page.tsx';

export function App() {
  const state = useStore(sessionState);
  const [error, setError] = useState<Error>();
  const link = useStore(connection);
  useEffect(() => {
    followLinks();
    listenForKeys();
  }, []);
  useEffect(() => {
    if (state.kind !== 'unknown' || link === 'lost') return;
    readSession().then(
      () => setError(undefined),
      (reason) => setError(asError(reason)),
    );
  }, [state.kind, link]);
  if (state.kind === 'none') return <SignInPage why={state.why} />;
  if (state.kind === 'open') return <Frame session={state.session} />;
  return (
    <main class="lone">
      {link === 'lost' && <LostBar />}
      {error ? <Problem error={error} /> : <p class="muted">Connecting…</p>}
    </main>
  );
}

function Frame({ session }: { session: Session }) {
  const { path, query } = useStore(place);
  const link = useStore(connection);
  const { parameters, route } = findRoute(path);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <div class="frame">
        <Navigation session={session} path={path} />
        <main id="main" tabIndex={-1}>
          {link === 'lost' && <LostBar />}
          <LoadedPage key={route.path} route={route} parameters={parameters} query={query} />
        </main>
      </div>
    </>
  );
}

function LostBar() {
  return (
    <div class="lost" role="alert">
      The platform does not answer. This page shows the last known state and reconnects by itself.
    </div>
  );
}

function LoadedPage({ parameters, query, route }: PageProps & { route: PageRoute }) {
  const [page, setPage] = useState<{ Page: ComponentType<PageProps> }>();
  const [error, setError] = useState<Error>();
  useEffect(() => {
    route.load().then(setPage, (reason) => setError(asError(reason)));
  }, [route]);
  if (error) {
    return (
      <div class="empty" role="alert">
        <h1>The page could not be loaded</h1>
        <p>The platform may have been updated. Load the page again.</p>
        <button type="button" onClick={() => location.reload()}>
          Load again
        </button>
      </div>
    );
  }
  return page ? <page.Page parameters={parameters} query={query} /> : null;
}
