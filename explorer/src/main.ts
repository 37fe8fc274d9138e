import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { loadPage, loadPagesLater } from "./lib/lazypages";
import { live } from "./lib/live.svelte";
import { past } from "./lib/past.svelte";
import { router } from "./lib/router.svelte";
import { theme } from "./lib/theme.svelte";

loadPage(router.route.name);
theme.start();
router.start();
past.start();
live.start();

const target = document.getElementById("app");
if (!target) throw new Error("the page has no place for the application");
target.replaceChildren();
mount(App, { target });
loadPagesLater();
