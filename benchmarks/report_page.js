// Measures a page in Chromium and takes its pictures: node report_page.js PAGE CELL BROWSER [PICTURES REAL_PAGE]
// prints a JSON object. NODE_PATH names a folder with playwright-core and axe-core.
const { chromium } = require("playwright-core");
const axe = require("axe-core");
const fs = require("node:fs");
const { pathToFileURL } = require("node:url");

const [page, cell, browserPath, pictures, realPage] = process.argv.slice(2);
const address = pathToFileURL(page).href;
const TIMES = 5;
const VIEWS = [[1280, 900, "light"], [1280, 900, "dark"], [400, 800, "light"], [400, 800, "dark"]];

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

const opened = async (browser, [width, height, colorScheme], url, said) => {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  const tab = await context.newPage();
  tab.on("console", (message) => ["error", "warning"].includes(message.type()) && said.push(message.text()));
  tab.on("pageerror", (error) => said.push(String(error)));
  tab.on("request", (request) => request.url().startsWith("file:") || said.push(`asked for ${request.url()}`));
  await tab.goto(url);
  return tab;
};

const painted = async (browser, view, said) => {
  const paints = [];
  const loads = [];
  for (let turn = 0; turn < TIMES; turn++) {
    const tab = await opened(browser, view, address, said);
    const times = await tab.evaluate(async () => {
      const paint = () => performance.getEntriesByName("first-contentful-paint")[0];
      while (!paint()) await new Promise((resolve) => setTimeout(resolve, 20));
      return [paint().startTime, performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd];
    });
    paints.push(times[0]);
    loads.push(times[1]);
    await tab.context().close();
  }
  return { paint_ms: median(paints), ready_ms: median(loads) };
};

// The matrix' rows are all of one kind: all of them would take axe minutes.
const violations = async (tab) => {
  await tab.evaluate(axe.source);
  const found = await tab.evaluate(() =>
    window.axe.run({ exclude: ["#models tbody tr:nth-child(n+21)"] }, { resultTypes: ["violations"] }),
  );
  return found.violations.map((one) => `${one.id}: ${one.nodes.length} (${one.nodes[0].target.join(" ")})`);
};

// Only the keyboard: Tab finds the first cell's button, Enter opens the cell in place, and Enter closes it.
const byKeyboard = async (browser, said) => {
  const tab = await opened(browser, VIEWS[0], address, said);
  const focused = () =>
    tab.evaluate(() => [document.activeElement.tagName, Boolean(document.activeElement.closest("#cell-table tbody"))]);
  for (let presses = 0; presses < 3000; presses++) {
    await tab.keyboard.press("Tab");
    const [name, inTable] = await focused();
    if (name === "BUTTON" && inTable) break;
  }
  await tab.keyboard.press("Enter");
  const reached = await tab
    .waitForFunction(() => document.activeElement.closest("tr.cell")?.nextElementSibling?.querySelector("table.checks"))
    .then(() => true, () => false);
  await tab.keyboard.press("Enter");
  const closed = await tab.evaluate(() => document.activeElement.closest("tr.cell").nextElementSibling.hidden);
  await tab.context().close();
  return reached && closed;
};

const picture = async (tab, name) => {
  const session = await tab.context().newCDPSession(tab);
  const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 78 });
  fs.writeFileSync(`${pictures}/${name}`, Buffer.from(data, "base64"));
};

const main = async () => {
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu"] });
  const said = [];
  const views = [];
  for (const view of VIEWS) {
    // Colours make no difference to when something is drawn.
    const times = view[2] === "light" ? await painted(browser, view, said) : {};
    const tab = await opened(browser, view, `${address}#${cell}`, said);
    await tab.waitForSelector("#cell-table tr.more table.checks");
    const overflow = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    views.push({ view, ...times, overflow, axe: await violations(tab) });
    await tab.context().close();
    console.error(JSON.stringify(views.at(-1)));
  }
  const keyboard = await byKeyboard(browser, said);
  if (pictures) {
    const real = pathToFileURL(realPage).href;
    for (const [name, view, anchor] of [
      ["report-light.webp", [1280, 1000, "light"], "#findings"],
      ["report-dark.webp", [1280, 1000, "dark"], "#figures"],
      ["report-narrow.webp", [400, 900, "light"], ""],
    ]) {
      const tab = await opened(browser, view, real + anchor, said);
      await tab.waitForTimeout(500);
      await picture(tab, name);
      await tab.context().close();
    }
  }
  console.log(JSON.stringify({ version: browser.version(), views, keyboard, said, axe: axe.version }));
  await browser.close();
};

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
