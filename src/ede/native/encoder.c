/* IMPALA's encoder without a graph: bytes of images in, features out, one image at a time, all of it in the cache.
 *
 * The same function as networks.Impala. ede.native compiles it where it is first needed.
 */
#include "convolve.h"

typedef struct {
    Plane plane[STAGES + 1]; /* before each stage's pooling; the last one after all */
    Convolution convolution[CONVOLUTIONS];
} Encoder;

/* Where the first of nine pixels is that no other exceeds, and its value. */
static inline __m512 first_of_most(const float *const rows[3], const long at[3], uint8_t *place) {
    __m512 most = _mm512_loadu_ps(rows[0] + at[0]);
    __m512i where = _mm512_setzero_si512();
    for (int i = 1; i < 9; i++) {
        __m512 other = _mm512_loadu_ps(rows[i / 3] + at[i % 3]);
        __mmask16 more = _mm512_cmp_ps_mask(other, most, _CMP_GT_OQ);
        most = _mm512_mask_mov_ps(most, more, other);
        where = _mm512_mask_mov_epi32(where, more, _mm512_set1_epi32(i));
    }
    _mm_storeu_si128((__m128i *)place, _mm512_cvtepi32_epi8(where));
    return most;
}

/* The pixels of a window at every second pixel. Outside the plane stands its nearest one, which the window holds. */
static inline void window(const float *wide, Plane from, int x, int y, int channels, const float *rows[3], long at[3]) {
    const long row = (from.width + 2L) * channels;
    rows[1] = wide + 2 * y * row;
    rows[0] = y ? rows[1] - row : rows[1];
    rows[2] = 2 * y + 1 < from.height ? rows[1] + row : rows[1];
    at[1] = 2L * x * channels;
    at[0] = x ? at[1] - channels : at[1];
    at[2] = 2 * x + 1 < from.width ? at[1] + channels : at[1];
}

/* Maxima over 3×3 at every second pixel: the residual of the smaller plane and, opened by a ReLU, what enters next;
 * and where asked for, which pixel each maximum was. */
static inline __attribute__((always_inline)) void
pool(enum arithmetic arithmetic, const float *wide, Plane from, Plane to, const int channels, float *residual,
     void *out, uint8_t *places) {
    const int row = to.width + 2;
    for (int y = 0; y < to.height; y++)
        for (int x = 0; x < to.width; x++) {
            const float *rows[3];
            long at[3], p = (long)y * row + x;
            window(wide, from, x, y, channels, rows, at);
            for (int first = 0; first < channels; first += 16, at[0] += 16, at[1] += 16, at[2] += 16) {
                __m512 most;
                if (places) {
                    most = first_of_most(rows, at, places + ((long)y * to.width + x) * channels + first);
                } else {
                    __m512 column[3];
                    for (int i = 0; i < 3; i++) {
                        column[i] = _mm512_max_ps(_mm512_loadu_ps(rows[0] + at[i]), _mm512_loadu_ps(rows[1] + at[i]));
                        column[i] = _mm512_max_ps(column[i], _mm512_loadu_ps(rows[2] + at[i]));
                    }
                    most = _mm512_max_ps(_mm512_max_ps(column[0], column[1]), column[2]);
                }
                _mm512_storeu_ps(residual + p * channels + first, most);
                put(arithmetic, out, (p + row + 1) * channels + first, relu(most));
            }
        }
}

static void shrink(enum arithmetic arithmetic, const float *wide, Plane from, Plane to, int channels, float *residual,
                   void *out, uint8_t *places) {
#define OF(ARITHMETIC, CHANNELS)                                                                                       \
    (places ? pool(ARITHMETIC, wide, from, to, CHANNELS, residual, out, places)                                        \
            : pool(ARITHMETIC, wide, from, to, CHANNELS, residual, out, NULL))
    if (arithmetic == FP32)
        channels == 16 ? OF(FP32, 16) : OF(FP32, 32);
    else /* tiles and pairs lie alike */
        channels == 16 ? OF(TILES, 16) : OF(TILES, 32);
#undef OF
}

/* Up to 16 pixels of three bytes each to numbers in [0, 1], four to a pixel, zeros for those that are not there. */
static inline __attribute__((always_inline)) void
enter_three(enum arithmetic arithmetic, const uint8_t *image, int pixels, void *out, long at) {
    const __m512i quarters = _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    const __m512i bytes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    __mmask64 there = (1ULL << (3 * pixels)) - 1;
    __m512i spread = _mm512_permutexvar_epi32(quarters, _mm512_maskz_loadu_epi8(there, image));
    __m128i part[4];
    _mm512_storeu_si512(part, _mm512_shuffle_epi8(spread, bytes));
    for (int i = 0; i < 4; i++) {
        __m512 number = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(part[i]));
        put(arithmetic, out, at + 16 * i, _mm512_div_ps(number, _mm512_set1_ps(255)));
    }
}

/* Bytes [H, W, channels] to numbers with a border, MOST_CHANNELS to a pixel. */
static inline __attribute__((always_inline)) void
enter(enum arithmetic arithmetic, const uint8_t *image, Plane plane, int channels, void *out) {
    for (int y = 0; y < plane.height; y++) {
        const uint8_t *line = image + (long)y * plane.width * channels;
        long at = ((long)(y + 1) * (plane.width + 2) + 1) * MOST_CHANNELS;
        if (channels == 3) /* past the line's end it writes zeros, where they belong or are written over */
            for (int x = 0; x < plane.width; x += 16, at += 16 * MOST_CHANNELS)
                enter_three(arithmetic, line + 3 * x, plane.width - x < 16 ? plane.width - x : 16, out, at);
        else
            for (int x = 0; x < plane.width; x++)
                for (int channel = 0; channel < channels; channel++) {
                    float number = (float)line[x * channels + channel] / 255;
                    if (arithmetic == FP32)
                        ((float *)out)[at + x * MOST_CHANNELS + channel] = number;
                    else
                        ((uint16_t *)out)[at + x * MOST_CHANNELS + channel] = half(number);
                }
    }
}

/* The residual of the last plane through a last ReLU, channels first. */
static void leave(const float *residual, Plane plane, int channels, float *features) {
    for (int channel = 0; channel < channels; channel++)
        for (int y = 0; y < plane.height; y++)
            for (int x = 0; x < plane.width; x++) {
                float value = residual[((long)y * (plane.width + 2) + x) * channels + channel];
                *features++ = value > 0 ? value : 0;
            }
}

/* Ask the system for the matrix units, once a process; 1 where this processor has them and the system gives them. */
int ede_matrix_units(void) {
    enum { REQUEST = 0x1023, TILE_DATA = 18 };
    return HAS_TILES && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

/* 1 where this processor multiplies pairs of bf16. */
int ede_pairs(void) { return HAS_PAIRS; }

static const int LEAVING[STAGES] = {16, 32, 32};

static void planes_of(Plane *plane, int height, int width) {
    plane[0] = plane_of(height, width);
    for (int stage = 0; stage < STAGES; stage++)
        plane[stage + 1] = plane_of((plane[stage].height + 1) / 2, (plane[stage].width + 1) / 2);
}

/* Everything about an encoder but its weights. */
static void measure(Encoder *e, int height, int width, int channels) {
    planes_of(e->plane, height, width);
    for (int number = 0; number < CONVOLUTIONS; number++) {
        Convolution *c = &e->convolution[number];
        int stage = number / 5;
        c->channels = number % 5 ? LEAVING[stage] : stage ? LEAVING[stage - 1] : channels;
        c->entering = number ? c->channels : MOST_CHANNELS;
        c->leaving = LEAVING[stage];
    }
}

/* Positions of a row of what a convolution reads. */
static int row_of(const Encoder *e, int number) { return e->plane[number / 5 + (number % 5 != 0)].width + 2; }

static void prepare(Encoder *e, int height, int width, int channels, enum arithmetic arithmetic,
                    const float *const *parameters) {
    measure(e, height, width, channels);
    for (int number = 0; number < CONVOLUTIONS; number++) {
        Convolution *c = &e->convolution[number];
        if (arithmetic == TILES)
            pack_tiles(c, parameters[2 * number], row_of(e, number));
        else
            pack_taps(arithmetic, c, parameters[2 * number], row_of(e, number));
        memcpy(c->bias, parameters[2 * number + 1], sizeof(float) * c->leaving);
        for (int n = 0; n < c->leaving; n++)
            for (int i = 0; i < 16; i++) c->bias_tile[n / 16][i][n % 16] = c->bias[n];
    }
}

static size_t bordered(Plane plane) { return (size_t)(plane.height + 2) * (plane.width + 2) + SLACK; }

/* Which positions are pixels. */
static __mmask16 *inside_of(Plane plane) {
    __mmask16 *inside = zeros(bordered(plane) * sizeof(__mmask16));
    for (int p = 0; p < plane.positions; p++) inside[p] = p % (plane.width + 2) < plane.width ? 0xFFFF : 0;
    return inside;
}

static void enter_image(enum arithmetic arithmetic, const uint8_t *image, Plane plane, int channels, void *out) {
    arithmetic == FP32 ? enter(FP32, image, plane, channels, out) /* tiles and pairs lie alike */
                       : enter(TILES, image, plane, channels, out);
}

/* One stage: what enters its four inner convolutions goes to opened, what leaves it to leaving; these may be the same
 * memory by turns, where nothing is kept. */
static void pass(enum arithmetic arithmetic, const Encoder *e, int stage, const void *in, const __mmask16 *inside,
                 float *wide, float *residual, void *const opened[4], void *leaving, uint8_t *places) {
    const Convolution *c = &e->convolution[5 * stage];
    Plane from = e->plane[stage], to = e->plane[stage + 1];
    convolve(arithmetic, c, RAW, in, from, NULL, wide, NULL);
    shrink(arithmetic, wide, from, to, LEAVING[stage], residual, opened[0], places);
    convolve(arithmetic, c + 1, OPEN, opened[0], to, inside, NULL, opened[1]);
    convolve(arithmetic, c + 2, ADD, opened[1], to, inside, residual, opened[2]);
    convolve(arithmetic, c + 3, OPEN, opened[2], to, inside, NULL, opened[3]);
    convolve(arithmetic, c + 4, ADD_LAST, opened[3], to, inside, residual, leaving);
}

/* count images [H, W, channels] to features [count, 32·h·w]; 15 weights and biases by turns, all float32. */
void ede_encode(const uint8_t *images, long count, int height, int width, int channels, int arithmetic,
                const float *const *parameters, float *features) {
    Encoder *e = aligned_alloc(64, (sizeof(Encoder) + 63) / 64 * 64);
    prepare(e, height, width, channels, arithmetic, parameters);
    if (arithmetic == TILES) configure_tiles();

    float *image = zeros(bordered(e->plane[0]) * MOST_CHANNELS * sizeof(float));
    float *wide = zeros(bordered(e->plane[0]) * WIDEST * sizeof(float));
    float *opened[STAGES], *inner[STAGES], *residual[STAGES];
    __mmask16 *inside[STAGES];
    for (int stage = 0; stage < STAGES; stage++) {
        Plane plane = e->plane[stage + 1];
        size_t bytes = bordered(plane) * LEAVING[stage] * sizeof(float);
        opened[stage] = zeros(bytes), inner[stage] = zeros(bytes), residual[stage] = zeros(bytes);
        inside[stage] = inside_of(plane);
    }

    long size = (long)LEAVING[STAGES - 1] * e->plane[STAGES].height * e->plane[STAGES].width;
    for (long number = 0; number < count; number++) {
        const uint8_t *next = images + number * height * width * channels;
        enter_image(arithmetic, next, e->plane[0], channels, image);
        const void *in = image;
        for (int stage = 0; stage < STAGES; stage++) {
            void *const by_turns[4] = {opened[stage], inner[stage], opened[stage], inner[stage]};
            pass(arithmetic, e, stage, in, inside[stage], wide, residual[stage], by_turns, opened[stage], NULL);
            in = opened[stage];
        }
        leave(residual[STAGES - 1], e->plane[STAGES], LEAVING[STAGES - 1], features + number * size);
    }

    if (arithmetic == TILES) release_tiles();
    for (int stage = 0; stage < STAGES; stage++)
        free(opened[stage]), free(inner[stage]), free(residual[stage]), free(inside[stage]);
    for (int number = 0; number < CONVOLUTIONS; number++) free(e->convolution[number].weight);
    free(image), free(wide), free(e);
}
