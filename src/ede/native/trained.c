/* IMPALA's encoder with what its gradient needs: forward keeps what entered each convolution, backward adds up the
 * gradients of the weights and biases. Layout and arithmetic are convolve.h's; the gradient of what enters a convolution
 * is a convolution by the turned weights, closed where a ReLU was.
 *
 * The gradient of a weight is a sum over positions of what entered times the gradient of what left. In bf16 two
 * neighbouring positions are multiplied at once, so both are laid out as words of two positions; what entered is needed
 * from even positions on and from odd ones, as a tap may be an odd number of positions away.
 */
#include "encoder.c"

typedef struct {
    size_t image, opened[STAGES][4], leaving[STAGES], places[STAGES], bytes; /* offsets of an image's kept planes */
} Kept;

static size_t take_bytes(Kept *k, size_t bytes) {
    size_t at = k->bytes;
    k->bytes += (bytes + 63) / 64 * 64;
    return at;
}

static Kept kept_of(const Plane *plane, enum arithmetic arithmetic) {
    Kept k = {.bytes = 0};
    size_t number = arithmetic == FP32 ? 4 : 2;
    k.image = take_bytes(&k, bordered(plane[0]) * MOST_CHANNELS * number);
    for (int stage = 0; stage < STAGES; stage++) {
        Plane small = plane[stage + 1];
        for (int i = 0; i < 4; i++)
            k.opened[stage][i] = take_bytes(&k, bordered(small) * LEAVING[stage] * number);
        k.leaving[stage] = take_bytes(&k, bordered(small) * LEAVING[stage] * number);
        k.places[stage] = take_bytes(&k, (size_t)small.height * small.width * LEAVING[stage]);
    }
    return k;
}

/* Bytes to keep of one image. */
long ede_kept_bytes(int height, int width, int arithmetic) {
    Plane plane[STAGES + 1];
    planes_of(plane, height, width);
    return (long)kept_of(plane, arithmetic).bytes;
}

/* As ede_encode; kept is zeros at first, [count, ede_kept_bytes]. */
void ede_train_forward(const uint8_t *images, long count, int height, int width, int channels, int arithmetic,
                       const float *const *parameters, char *kept, float *features) {
    Encoder *e = aligned_alloc(64, (sizeof(Encoder) + 63) / 64 * 64);
    prepare(e, height, width, channels, arithmetic, parameters);
    Kept k = kept_of(e->plane, arithmetic);
    float *wide = zeros(bordered(e->plane[0]) * WIDEST * sizeof(float)), *residual[STAGES];
    __mmask16 *inside[STAGES];
    for (int stage = 0; stage < STAGES; stage++) {
        residual[stage] = zeros(bordered(e->plane[stage + 1]) * LEAVING[stage] * sizeof(float));
        inside[stage] = inside_of(e->plane[stage + 1]);
    }
    long size = (long)LEAVING[STAGES - 1] * e->plane[STAGES].height * e->plane[STAGES].width;
    for (long number = 0; number < count; number++, kept += k.bytes) {
        const uint8_t *next = images + number * height * width * channels;
        enter_image(arithmetic, next, e->plane[0], channels, kept + k.image);
        const void *in = kept + k.image;
        for (int stage = 0; stage < STAGES; stage++) {
            void *opened[4];
            for (int i = 0; i < 4; i++) opened[i] = kept + k.opened[stage][i];
            pass(arithmetic, e, stage, in, inside[stage], wide, residual[stage], opened, kept + k.leaving[stage],
                 (uint8_t *)kept + k.places[stage]);
            in = kept + k.leaving[stage];
        }
        leave(residual[STAGES - 1], e->plane[STAGES], LEAVING[STAGES - 1], features + number * size);
    }
    for (int stage = 0; stage < STAGES; stage++) free(residual[stage]), free(inside[stage]);
    for (int number = 0; number < CONVOLUTIONS; number++) free(e->convolution[number].weight);
    free(wide), free(e);
}

/* The convolution by which a gradient goes back through another: its weights turned about, in and out exchanged. */
static void turn(enum arithmetic arithmetic, Convolution *back, const Convolution *c, const float *weight, int row) {
    float *turned = zeros(sizeof(float) * 9 * c->leaving * c->channels);
    for (int n = 0; n < c->leaving; n++)
        for (int channel = 0; channel < c->channels; channel++)
            for (int tap = 0; tap < 9; tap++)
                turned[(channel * (long)c->leaving + n) * 9 + 8 - tap] = weight[(n * (long)c->channels + channel) * 9 + tap];
    back->channels = back->entering = c->leaving;
    back->leaving = c->channels;
    memset(back->bias, 0, sizeof back->bias);
    pack_taps(arithmetic, back, turned, row);
    free(turned);
}

static void go_back(enum arithmetic arithmetic, const Convolution *c, enum after after, const void *in, Plane plane,
                    const __mmask16 *inside, float *residual, const void *gate, void *out) {
#define OF(BLOCKS, AFTER)                                                                                             \
    (arithmetic == PAIRS ? convolve_taps(PAIRS, c, BLOCKS, AFTER, in, plane, inside, residual, gate, out)             \
                         : convolve_taps(FP32, c, BLOCKS, AFTER, in, plane, inside, residual, gate, out))
    if (c->leaving == 16)
        after == GATE ? OF(1, GATE) : after == GATE_ADD ? OF(1, GATE_ADD) : OF(1, START);
    else
        after == GATE ? OF(2, GATE) : after == GATE_ADD ? OF(2, GATE_ADD) : OF(2, START);
#undef OF
}

/* Numbers [positions, channels] as words of two positions, count of them from position first on. */
static inline __attribute__((always_inline)) void
pair_up(const uint16_t *numbers, long first, long count, const int channels, uint32_t *words) {
    for (long q = 0; q < count; q++) {
        const uint16_t *one = numbers + (first + 2 * q) * channels, *other = one + channels;
        for (int channel = 0; channel < channels; channel++)
            words[q * channels + channel] = one[channel] | (uint32_t)other[channel] << 16;
    }
}

static void pairs_of(const uint16_t *numbers, long first, long count, int channels, uint32_t *words) {
    if (channels == 4)
        pair_up(numbers, first, count, 4, words);
    else if (channels == 16)
        pair_up(numbers, first, count, 16, words);
    else
        pair_up(numbers, first, count, 32, words);
}

/* Of some taps and entering channels, by all leaving ones: sums over count words, added to sums [tap, entering,
 * leaving] from the first of them on. */
static inline __attribute__((always_inline)) void
add_weights(enum arithmetic arithmetic, const float *const *x, const int taps, const int many, const int blocks,
            long stride, const float *gradient, long count, float *sums, long tap_stride) {
    __m512 sum[16];
#pragma GCC unroll 16
    for (int i = 0; i < taps * many * blocks; i++) sum[i] = _mm512_setzero_ps();
    for (long q = 0; q < count; q++, gradient += 16 * blocks) {
        const __m512 low = _mm512_loadu_ps(gradient), high = _mm512_loadu_ps(gradient + 16 * (blocks - 1));
#pragma GCC unroll 16
        for (int tap = 0; tap < taps; tap++)
#pragma GCC unroll 16
            for (int i = 0; i < many; i++) {
                __m512 value = _mm512_set1_ps(x[tap][q * stride + i]);
                int at = (tap * many + i) * blocks;
                sum[at] = add_product(arithmetic, sum[at], value, low);
                if (blocks == 2) sum[at + 1] = add_product(arithmetic, sum[at + 1], value, high);
            }
    }
#pragma GCC unroll 16
    for (int tap = 0; tap < taps; tap++)
#pragma GCC unroll 16
        for (int i = 0; i < many * blocks; i++) {
            float *to = sums + tap * tap_stride + i * 16;
            _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum[tap * many * blocks + i]));
        }
}

typedef struct {
    uint32_t *even, *odd, *gradient; /* room for words */
} Room;

/* Gradients of a convolution's weights, [tap, entering, leaving], and of its bias. */
static inline __attribute__((always_inline)) void
learn(enum arithmetic arithmetic, const Convolution *c, const void *in, const void *gradient, Plane plane, Room room,
      float *sums, float *bias) {
    const int row = plane.width + 2, together = arithmetic == FP32 ? 1 : 2;
    const long count = (plane.positions + together - 1) / together, first = row + 1, stride = c->entering;
    const float *even = in, *odd = in, *left = (const float *)gradient + first * c->leaving;
    if (arithmetic == PAIRS) {
        long all = count + row + 2;
        pairs_of(in, 0, all, c->entering, room.even);
        pairs_of(in, 1, all, c->entering, room.odd);
        pairs_of(gradient, first, count, c->leaving, room.gradient);
        even = (float *)room.even, odd = (float *)room.odd, left = (float *)room.gradient;
    }
    const long tap_stride = (long)c->entering * c->leaving;
    for (int y = 0; y < 3; y++) {
        const float *x[3];
        for (int tap = 0; tap < 3; tap++) {
            long offset = (long)y * row + tap;
            x[tap] = (offset % together ? odd : even) + offset / together * stride;
        }
        float *to = sums + 3 * y * tap_stride;
        if (c->entering == MOST_CHANNELS)
            add_weights(arithmetic, x, 3, 4, 1, MOST_CHANNELS, left, count, to, tap_stride);
        else
            for (int tap = 0; tap < 3; tap++, to += tap_stride)
                if (c->leaving == 16) {
                    add_weights(arithmetic, x + tap, 1, 16, 1, 16, left, count, to, 0);
                } else
                    for (int i = 0; i < c->entering; i += 8) {
                        const float *from = x[tap] + i;
                        c->entering == 16 ? add_weights(arithmetic, &from, 1, 8, 2, 16, left, count, to + i * 32, 0)
                                          : add_weights(arithmetic, &from, 1, 8, 2, 32, left, count, to + i * 32, 0);
                    }
    }
    for (long p = first; p < first + plane.positions; p++)
        for (int n = 0; n < c->leaving; n += 16) {
            long at = p * c->leaving + n;
            __m512 value;
            if (arithmetic == FP32)
                value = _mm512_loadu_ps((const float *)gradient + at);
            else
                value = _mm512_castsi512_ps(_mm512_slli_epi32(
                    _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)((const uint16_t *)gradient + at))), 16));
            _mm512_storeu_ps(bias + n, _mm512_add_ps(_mm512_loadu_ps(bias + n), value));
        }
}

/* The gradient of pooled pixels to the pixels that they were; spread is zeros at first and afterwards. */
static void widen(enum arithmetic arithmetic, const float *gradient, const uint8_t *places, Plane from, Plane to,
                  int channels, float *spread, void *out) {
    for (int y = 0; y < to.height; y++)
        for (int x = 0; x < to.width; x++) {
            const float *rows[3];
            long at[3];
            window(spread, from, x, y, channels, rows, at);
            for (int first = 0; first < channels; first += 16) {
                __m512 value = _mm512_loadu_ps(gradient + ((long)y * (to.width + 2) + x) * channels + first);
                __m512i place = _mm512_cvtepu8_epi32(
                    _mm_loadu_si128((const __m128i *)(places + ((long)y * to.width + x) * channels + first)));
                for (int i = 0; i < 9; i++) {
                    float *pixel = (float *)rows[i / 3] + at[i % 3] + first;
                    __mmask16 here = _mm512_cmpeq_epi32_mask(place, _mm512_set1_epi32(i));
                    __m512 before = _mm512_loadu_ps(pixel);
                    _mm512_storeu_ps(pixel, _mm512_mask_add_ps(before, here, before, value));
                }
            }
        }
    const int row = from.width + 2;
    for (int y = 0; y < from.height; y++)
        for (long i = (long)y * row * channels, end = i + (long)from.width * channels; i < end; i += 16) {
            put(arithmetic, out, i + (long)(row + 1) * channels, _mm512_loadu_ps(spread + i));
            _mm512_storeu_ps(spread + i, _mm512_setzero_ps());
        }
}

/* The features' gradient, already closed by the last ReLU, to the last plane. */
static void return_from(enum arithmetic arithmetic, const float *features, Plane plane, int channels, float *residual,
                        void *out) {
    const int row = plane.width + 2;
    for (int y = 0; y < plane.height; y++)
        for (int x = 0; x < plane.width; x++)
            for (int first = 0; first < channels; first += 16) {
                float values[16];
                for (int i = 0; i < 16; i++)
                    values[i] = features[((long)(first + i) * plane.height + y) * plane.width + x];
                long p = (long)y * row + x;
                __m512 value = _mm512_loadu_ps(values);
                _mm512_storeu_ps(residual + p * channels + first, value);
                put(arithmetic, out, (p + row + 1) * channels + first, value);
            }
}

/* From the features' gradient [count, 32·h·w] to those of weights and biases by turns, one after another in gradients,
 * added to what is there. */
void ede_train_backward(const char *kept, long count, int height, int width, int channels, int arithmetic,
                        const float *const *parameters, const float *features, float *gradients) {
    Encoder *e = aligned_alloc(64, (sizeof(Encoder) + 63) / 64 * 64);
    measure(e, height, width, channels);
    Kept k = kept_of(e->plane, arithmetic);
    Convolution *back = zeros(sizeof(Convolution) * CONVOLUTIONS);
    float *sums[CONVOLUTIONS], bias[CONVOLUTIONS][WIDEST];
    memset(bias, 0, sizeof bias);
    for (int number = 0; number < CONVOLUTIONS; number++) {
        const Convolution *c = &e->convolution[number];
        sums[number] = zeros(sizeof(float) * 9 * c->entering * c->leaving);
        if (number) turn(arithmetic, &back[number], c, parameters[2 * number], row_of(e, number));
    }
    size_t widest = bordered(e->plane[0]) * WIDEST * sizeof(float);
    float *spread = zeros(widest), *wide[STAGES], *residual[STAGES], *outer[STAGES], *inner[STAGES];
    Room room = {zeros(widest), zeros(widest), zeros(widest)};
    __mmask16 *inside[STAGES];
    for (int stage = 0; stage < STAGES; stage++) {
        size_t bytes = bordered(e->plane[stage + 1]) * LEAVING[stage] * sizeof(float);
        residual[stage] = zeros(bytes), outer[stage] = zeros(bytes), inner[stage] = zeros(bytes);
        wide[stage] = zeros(bordered(e->plane[stage]) * LEAVING[stage] * sizeof(float));
        inside[stage] = inside_of(e->plane[stage + 1]);
    }

#define LEARN(NUMBER, IN, GRADIENT, PLANE)                                                                            \
    (arithmetic == FP32                                                                                               \
         ? learn(FP32, &e->convolution[NUMBER], IN, GRADIENT, PLANE, room, sums[NUMBER], bias[NUMBER])                \
         : learn(PAIRS, &e->convolution[NUMBER], IN, GRADIENT, PLANE, room, sums[NUMBER], bias[NUMBER]))
    long size = (long)LEAVING[STAGES - 1] * e->plane[STAGES].height * e->plane[STAGES].width;
    for (long image = 0; image < count; image++, kept += k.bytes) {
        return_from(arithmetic, features + image * size, e->plane[STAGES], LEAVING[STAGES - 1], residual[STAGES - 1],
                    outer[STAGES - 1]);
        for (int stage = STAGES - 1; stage >= 0; stage--) {
            Plane plane = e->plane[stage + 1];
            void *out = outer[stage], *in = inner[stage];
            int entry = 5 * stage;
            for (int block = 1; block >= 0; block--) { /* each of two convolutions */
                const char *first = kept + k.opened[stage][2 * block], *second = kept + k.opened[stage][2 * block + 1];
                int number = entry + 1 + 2 * block;
                LEARN(number + 1, second, out, plane);
                go_back(arithmetic, &back[number + 1], GATE, out, plane, inside[stage], NULL, second, in);
                LEARN(number, first, in, plane);
                go_back(arithmetic, &back[number], GATE_ADD, in, plane, inside[stage], residual[stage], first, out);
            }
            widen(arithmetic, residual[stage], (const uint8_t *)kept + k.places[stage], e->plane[stage], plane,
                  LEAVING[stage], spread, wide[stage]);
            LEARN(entry, kept + (stage ? k.leaving[stage - 1] : k.image), wide[stage],
                  e->plane[stage]);
            if (stage)
                go_back(arithmetic, &back[entry], START, wide[stage], e->plane[stage], inside[stage - 1], residual[stage - 1],
                        NULL, outer[stage - 1]);
        }
    }
#undef LEARN

    for (int number = 0; number < CONVOLUTIONS; number++) {
        const Convolution *c = &e->convolution[number];
        for (int n = 0; n < c->leaving; n++)
            for (int channel = 0; channel < c->channels; channel++)
                for (int tap = 0; tap < 9; tap++)
                    *gradients++ += sums[number][((long)tap * c->entering + channel) * c->leaving + n];
        for (int n = 0; n < c->leaving; n++) *gradients++ += bias[number][n];
        free(sums[number]), free(back[number].weight);
    }
    for (int stage = 0; stage < STAGES; stage++)
        free(residual[stage]), free(outer[stage]), free(inner[stage]), free(wide[stage]), free(inside[stage]);
    free(room.even), free(room.odd), free(room.gradient), free(spread), free(back), free(e);
}
