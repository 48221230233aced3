# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The page in Chromium: it shows the reference weights, and does what pointer and keys ask for."""

import json
import os
import time

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.diagnostics import record_associations, write_explorer

from ...browser import start_browser
from ...tiny_models import VOCABULARY, tiny_inputs, tiny_model


HOSTILE = "</script><script>document.title='broken'</script><img/src=x/onerror=alert(1)>"
SETTINGS = {"alpha": 1.5, "beta": [2.0, 3.0, 4.0, 5.0], "length_power": 0.25}


@pytest.fixture(scope="module")
def browser():
    yield from start_browser()


def words() -> PreTrainedTokenizerFast:
    vocabulary = {f"word{i}": i for i in range(VOCABULARY)}
    hostile = "word7"
    del vocabulary[hostile]
    vocabulary[HOSTILE] = 7
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="word0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="word0")


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A page of a tiny language model, with the weights of its heads."""
    model = to_sparse_hopfield(tiny_model("llama"), {**SETTINGS, "steps": 3})
    inputs = {"input_ids": torch.tensor([[5, 7, 30, 7, 41, 5, 60, 7, 12, 13, 14, 77]])}
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    write_explorer(model, inputs, path, processor=words(), title=f"Heads & {HOSTILE}")
    sparse = record_associations(model, inputs)
    dense = tiny_model("llama", "eager")(**inputs, output_attentions=True).attentions
    return path, [weight[0] for weight in sparse.values()], [weight[0] for weight in dense]


def shown(browser, side):
    """The keys that are marked in a text, with their weights as the page writes them."""
    found = browser.run(
        f"[...document.querySelectorAll('#{side}-view [data-weight]')].map((one) => [one.dataset.place, one.dataset.weight])"
    )
    return {int(place): weight for place, weight in found}


def written(weights, list_tiny):
    """Weights as the page writes them, without those that are zero."""
    return {
        place: "<0.01 %" if weight < 0.5e-4 else f"{100 * weight:.2f} %"
        for place, weight in enumerate(weights.tolist())
        if weight > (0 if list_tiny else 0.5e-4)
    }


def same(found, expected):
    assert found.keys() == expected.keys()
    for place, weight in expected.items():
        numbers = [float(text.strip("<%")) for text in (found[place], weight)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.0101)  # rounded to 0.01 % from float32 in another order


def test_hovering_shows_exactly_the_reference_weights(browser, explored):
    path, sparse, dense = explored
    browser.open(path)
    for layer, head, query in [(0, 0, 11), (1, 3, 6), (1, 2, 0)]:
        browser.find(f"#cell-{layer}-{head}").click()
        browser.wait(f"document.querySelector('#head-title').textContent === 'Layer {layer}, head {head}'")
        browser.hover(f"#sparse-{query}")
        browser.wait(f"document.querySelector('#dense-{query}').classList.contains('query')")
        same(shown(browser, "sparse"), written(sparse[layer][head, query], True))
        same(shown(browser, "dense"), written(dense[layer][head, query], False))
        support = int((sparse[layer][head, query] > 0).sum())
        assert browser.text("#sparse-count").startswith(f"{support} of {query + 1} keys have weight")
        assert len(browser.driver.find_elements("css selector", "#sparse-list li")) == support
    assert browser.errors() == []


def test_text_of_a_model_stays_text(browser, explored):
    browser.open(explored[0])
    assert browser.driver.title == f"Heads & {HOSTILE}" == browser.text("h1")
    assert browser.text("#sparse-1").strip() == HOSTILE
    assert browser.run("document.images.length") == 0 and browser.errors() == []
    # Even a script that got into the page would not run: its policy knows one script only.
    browser.run(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
    )
    assert browser.run("window.ran") is None and "Content Security Policy" in browser.errors()[0]


def test_keys_move_among_heads_and_tokens(browser, explored):
    from selenium.webdriver.common.keys import Keys

    browser.open(explored[0])
    browser.run("document.querySelector('#map').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    browser.wait("document.querySelector('#head-title').textContent === 'Layer 1, head 2'")
    assert browser.find("#cell-1-2").get_attribute("aria-selected") == "true"
    browser.press("[")
    browser.wait("document.querySelector('#head-title').textContent === 'Layer 1, head 1'")
    browser.run("document.querySelector('#sparse-view .stream').focus()")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.run("document.querySelector('#sparse-view .query').id") == "sparse-2"
    assert "token 2, held" in browser.text("#state")
    browser.hover("#dense-9")
    assert browser.run("document.querySelector('#sparse-view .query').id") == "sparse-2"
    browser.press(Keys.ESCAPE)
    browser.hover("#dense-8")
    browser.wait("document.querySelector('#sparse-view .query').id === 'sparse-8'")
    browser.press("?")
    assert browser.find("#help").is_displayed() and "copying head" in browser.text("#words")
    browser.press(Keys.ESCAPE)
    assert not browser.find("#help").is_displayed()
    browser.wait("location.hash === '#layer=1&head=1&token=8'")
    browser.open(explored[0], hash="#layer=1&head=3&token=4&held=1&colour=beta")
    assert browser.text("#head-title") == "Layer 1, head 3" and "token 4, held" in browser.text("#state")
    assert [browser.text("#scale-low"), browser.text("#scale-high")] == ["2", "5"]
    assert browser.errors() == []


def test_light_and_dark(browser, explored):
    page = "getComputedStyle(document.body).backgroundColor"
    browser.open(explored[0])
    light = browser.run(page)
    browser.open(explored[0], dark=True)
    dark = browser.run(page)
    assert light != dark
    browser.find("#theme").click()
    assert browser.run(page) == light
    browser.open(explored[0], dark=True)  # the choice stays
    assert browser.run(page) == light
    browser.press("d")
    assert browser.run(page) == dark
    browser.run("localStorage.clear()")
    assert browser.errors() == []


@pytest.mark.parametrize("dark", [False, True])
def test_marked_words_can_be_read(browser, explored, dark):
    """The contrast of each token that is read, at any weight, is at least 4 (of 21)."""
    browser.open(explored[0], hash="#layer=0&head=1&token=11&held=1", dark=dark)
    colours = browser.driver.execute_script("""
        const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const mixed = (...layers) => {
            for (const layer of layers) { paint.fillStyle = layer; paint.fillRect(0, 0, 1, 1); }
            return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
        };
        const found = [];
        for (const side of ["sparse", "dense"]) {
            const one = document.querySelector(`#${side}-view .token.read`);
            one.style.transition = "none";
            const under = getComputedStyle(one.closest(".stream")).backgroundColor;
            for (let percent = 0; percent <= 100; percent++) {
                one.style.setProperty("--strength", percent / 100);
                const style = getComputedStyle(one);
                found.push([mixed(style.color), mixed(under, style.backgroundColor)]);
            }
        }
        return found;
    """)

    def luminance(colour):
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert len(colours) == 202 and len({tuple(text) for text, _ in colours}) == 2
    for text, background in colours:
        low, high = sorted([luminance(text), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 4
    browser.run("localStorage.clear()")


def test_settings_and_energies_are_shown(browser, explored):
    browser.open(explored[0], hash="#layer=0&head=1&token=11")
    facts = browser.text("#facts")
    assert "alpha1.5" in facts and "beta3for 256 keys" in facts and "length power0.25" in facts and "steps3" in facts
    assert f"This position sees 12 keys: beta {3 * (12 / 256) ** 0.25:.3g}." in browser.text("#length-chart")
    data = json.loads(browser.text("#data"))
    energies = data["layers"][0]["energy"][1]
    assert len(energies) == 3 and energies[0] > energies[1] > energies[2]
    assert f"{energies[0]:.4g} before, {energies[2]:.4g} at the read-out" in browser.text("#energy-chart")
    assert len(browser.driver.find_elements("css selector", "#energy-chart path")) == 2


@pytest.mark.parametrize("name", ["t5", "vit", "whisper"])
def test_other_models(browser, name, tmp_path):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": 2.0})
    inputs = tiny_inputs(name)
    if name == "t5":  # as long as the text of the encoder: only the name of a layer tells them apart
        inputs["decoder_input_ids"] = tiny_inputs(name, seed=1)["input_ids"]
    write_explorer(model, inputs, tmp_path / "explorer.html")
    weights = [weight[0] for weight in record_associations(model, inputs).values()]
    browser.open(tmp_path / "explorer.html", width=400)
    for layer in range(len(weights)):
        browser.run(f"document.querySelector('#cell-{layer}-1').click()")
        browser.wait(f"document.querySelector('#cell-{layer}-1').ariaSelected === 'true'")
        browser.wait(f"document.querySelector('#head-path').textContent === {list(record_names(model))[layer]!r}")
        prefix = "query" if browser.run("!document.querySelector('#query-view').hidden") else "sparse"
        browser.hover(f"#{prefix}-1")
        browser.wait(f"document.querySelector('#{prefix}-1').classList.contains('query')")
        same(shown(browser, "sparse"), written(weights[layer][1, 1], True))
        assert browser.run("document.documentElement.scrollWidth") <= 400
    titles = browser.run("[...document.querySelectorAll('.group-title')].map((title) => title.textContent)")
    assert (
        titles
        == {
            "t5": ["encoder text", "decoder text", "decoder text reads encoder text"],
            "vit": [],
            "whisper": ["positions", "decoder text", "decoder text reads positions"],
        }[name]
    )
    if name == "vit":
        assert browser.text("#reads-title") == "What each patch reads"
        pixels = "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data"
        canvas = "document.querySelector('.picture canvas')"
        assert browser.run(f"((canvas) => new Set({pixels}).size)({canvas})") > 20
    assert browser.errors() == []


def record_names(model):
    return (
        name.removesuffix(".sparse_hopfield")
        for name, module in model.named_modules()
        if name.endswith(".sparse_hopfield")
    )


@pytest.mark.slow
def test_a_thousand_tokens_and_thirty_layers(browser, tmp_path):
    shape = {
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 1024,
    }
    model = to_sparse_hopfield(tiny_model("llama", hidden_size=72, **shape), {"alpha": 1.5, "beta": 1.0})
    path = tmp_path / "explorer.html"
    write_explorer(model, {"input_ids": torch.randint(3, 98, (1, 1000))}, path)
    assert os.path.getsize(path) < 20e6
    start = time.monotonic()
    browser.open(path)
    assert time.monotonic() - start < 20
    start = time.monotonic()
    browser.run("document.querySelector('#cell-29-8').click()")
    browser.wait("document.querySelector('#head-title').textContent === 'Layer 29, head 8'")
    assert time.monotonic() - start < 5
    frames = browser.driver.execute_async_script("""
        const done = arguments[0], tokens = [...document.querySelectorAll('#sparse-view .token')], took = [];
        const next = (place) => {
            if (place >= tokens.length) return done(took);
            const start = performance.now();
            tokens[place].dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
            requestAnimationFrame(() => setTimeout(() => (took.push(performance.now() - start), next(place + 40))));
        };
        next(0);
    """)
    assert sorted(frames)[len(frames) // 2] < 250  # milliseconds, also without a graphics card and on a busy machine
    assert browser.run("document.documentElement.scrollWidth") <= 1280 and browser.errors() == []
