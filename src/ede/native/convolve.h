/* Convolutions of 3×3 over one image in the cache, for x86 processors with AVX-512: float32 by fused multiply-adds, bf16
 * by the matrix units (AMX) or by products of pairs (AVX512-BF16), sums in float32 under all.
 *
 * Layout: an image of H×W pixels lies with a border of zeros, (H+2)×(W+2)×C, channels last, so that a tap of a
 * convolution is an offset. Positions count along the rows of the bordered image: p = y·(W+2) + x; the two at each
 * row's end are left out, or computed too and put away as zeros. Residuals are float32 at the positions, without a border.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STAGES = 3, CONVOLUTIONS = 15, WIDEST = 32, SLACK = 96, MOST_CHANNELS = 4 };
enum arithmetic { FP32, PAIRS, TILES }; /* the latter two are bf16 */

typedef struct {
    int height, width, positions; /* of what a convolution reads and leaves */
} Plane;

typedef struct {
    int entering, leaving; /* channels in memory */
    int channels, steps;   /* of the entering ones, those that are not padding; taps or tiles to multiply */
    int offset[9];         /* of each step, in positions */
    void *weight;
    float bias[WIDEST], bias_tile[WIDEST / 16][16][16];
} Convolution;

/* What one convolution does with its result at each position; the last three are for gradients (trained.c): closed
 * where the gate was, that and added, or as it is. */
enum after { RAW, OPEN, ADD, ADD_LAST, GATE, GATE_ADD, START };

static inline __m512 relu(__m512 x) { return _mm512_max_ps(x, _mm512_setzero_ps()); }

#ifdef __AVX512BF16__
#define HAS_PAIRS 1
static inline __m256i halves(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
static inline __m512 add_pairs(__m512 sum, __m512 x, __m512 w) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)w);
}
#else /* never reached: bf16 is refused */
#define HAS_PAIRS 0
static inline __m256i halves(__m512 x) { return _mm512_cvtps_ph(x, 0); }
static inline __m512 add_pairs(__m512 sum, __m512 x, __m512 w) { return (void)x, (void)w, sum; }
#endif
#if HAS_PAIRS && defined(__AMX_BF16__)
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

static inline __m512 add_product(enum arithmetic arithmetic, __m512 sum, __m512 x, __m512 w) {
    return arithmetic == FP32 ? _mm512_fmadd_ps(x, w, sum) : add_pairs(sum, x, w);
}

static inline uint16_t half(float x) { return (uint16_t)_mm256_extract_epi16(halves(_mm512_set1_ps(x)), 0); }

static inline void put(enum arithmetic arithmetic, void *to, long index, __m512 x) {
    if (arithmetic == FP32)
        _mm512_storeu_ps((float *)to + index, x);
    else
        _mm256_storeu_si256((__m256i *)((uint16_t *)to + index), halves(x));
}

/* Where a ReLU was open. */
static inline __mmask16 positive(enum arithmetic arithmetic, const void *from, long index) {
    if (arithmetic == FP32)
        return _mm512_cmp_ps_mask(_mm512_loadu_ps((const float *)from + index), _mm512_setzero_ps(), _CMP_GT_OQ);
    __m256i shorts = _mm256_loadu_si256((const __m256i *)((const uint16_t *)from + index));
    return _mm256_cmpgt_epi16_mask(shorts, _mm256_setzero_si256());
}

static void *zeros(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return memset(memory, 0, (bytes + 63) / 64 * 64);
}

static Plane plane_of(int height, int width) {
    return (Plane){height, width, (height - 1) * (width + 2) + width};
}

/* A word is what is multiplied at once for each sum: a float, or two neighbouring channels in bf16. */
static inline int words_of(enum arithmetic arithmetic, const Convolution *c) {
    return arithmetic == FP32 ? c->channels : (c->channels + 1) / 2;
}

/* Weights [leaving, channels, 3, 3] as [tap, words, leaving]. */
static void pack_taps(enum arithmetic arithmetic, Convolution *c, const float *weight, int row) {
    c->steps = 9;
    int words = words_of(arithmetic, c);
    float *floats = c->weight = zeros(sizeof(float) * 9 * words * c->leaving);
    uint16_t *shorts = c->weight;
    for (int tap = 0; tap < 9; tap++) {
        c->offset[tap] = tap / 3 * row + tap % 3;
        for (int channel = 0; channel < c->channels; channel++)
            for (int n = 0; n < c->leaving; n++) {
                float of = weight[(n * (long)c->channels + channel) * 9 + tap];
                if (arithmetic == FP32)
                    floats[(tap * words + channel) * c->leaving + n] = of;
                else
                    shorts[((tap * words + channel / 2) * c->leaving + n) * 2 + channel % 2] = half(of);
            }
    }
}

/* Results of some positions and 16 channels, from position p on. */
static inline __attribute__((always_inline)) void
finish(enum arithmetic arithmetic, enum after after, const float *result, int positions, long p,
       const __mmask16 *inside, int leaving, int first, int row, float *residual, const void *gate, void *out) {
    for (int i = 0; i < positions; i++) {
        __m512 x = _mm512_loadu_ps(result + i * 16);
        long at = (p + i) * leaving + first, bordered = (p + i + row + 1) * leaving + first;
        if (after == RAW) {
            _mm512_storeu_ps(residual + at, x);
            continue;
        }
        if (after == GATE || after == GATE_ADD) x = _mm512_maskz_mov_ps(positive(arithmetic, gate, bordered), x);
        if (after == ADD || after == ADD_LAST || after == GATE_ADD)
            x = _mm512_add_ps(x, _mm512_loadu_ps(residual + at));
        if (after != OPEN && after != GATE) _mm512_storeu_ps(residual + at, x);
        if (after == OPEN || after == ADD) x = relu(x);
        put(arithmetic, out, bordered, _mm512_maskz_mov_ps(inside[p + i], x));
    }
}

static inline __attribute__((always_inline)) void
convolve_taps(enum arithmetic arithmetic, const Convolution *c, const int blocks, enum after after, const void *in,
              Plane plane, const __mmask16 *inside, float *residual, const void *gate, void *out) {
    enum { SUMS = 16 }; /* enough to hide how long a product takes, and a power of two, as widths mostly are */
    const int together = SUMS / blocks, row = plane.width + 2;
    /* Runs of positions that a row is a multiple of leave out the two at its end; others go on through them. */
    const int whole = plane.width % together == 0, runs_a_row = plane.width / together;
    const long runs = whole ? (long)plane.height * runs_a_row : (plane.positions + together - 1) / together;
    const int words = words_of(arithmetic, c), stride = arithmetic == FP32 ? c->entering : c->entering / 2;
    float result[SUMS][16] __attribute__((aligned(64)));
    for (long run = 0; run < runs; run++) {
        const long p = whole ? run / runs_a_row * row + run % runs_a_row * together : run * together;
        __m512 sum[SUMS];
#pragma GCC unroll 32
        for (int i = 0; i < SUMS; i++) sum[i] = _mm512_loadu_ps(c->bias + 16 * (i / together));
        for (int tap = 0; tap < 9; tap++) {
            const float *x = (const float *)in + (p + c->offset[tap]) * stride;
            const float *w = (const float *)c->weight + (long)tap * words * 16 * blocks;
            for (int word = 0; word < words; word++, x++, w += 16 * blocks) {
                const __m512 first = _mm512_load_ps(w), last = _mm512_load_ps(w + 16 * (blocks - 1));
#pragma GCC unroll 32
                for (int i = 0; i < together; i++) {
                    __m512 value = _mm512_set1_ps(x[i * stride]);
                    sum[i] = add_product(arithmetic, sum[i], value, first);
                    if (blocks == 2) sum[together + i] = add_product(arithmetic, sum[together + i], value, last);
                }
            }
        }
#pragma GCC unroll 32
        for (int i = 0; i < SUMS; i++) _mm512_store_ps(result[i], sum[i]);
        for (int block = 0; block < blocks; block++)
            finish(arithmetic, after, result[block * together], together, p, inside, 16 * blocks, 16 * block, row,
                   residual, gate, out);
    }
}

#if HAS_TILES
/* Weights [leaving, entering, 3, 3] as tiles of 16 pairs of inputs by 16 outputs; a step covers 32 numbers that lie
 * one after another in a row of pixels: one pixel of 32 channels, two of 16, or eight of 4. */
static void pack_tiles(Convolution *c, const float *weight, int row) {
    int pixels = 32 / c->entering, steps_a_row = (3 + pixels - 1) / pixels, blocks = c->leaving / 16;
    c->steps = 3 * steps_a_row;
    uint16_t *tiles = aligned_alloc(64, (size_t)c->steps * blocks * 1024);
    c->weight = tiles;
    for (int step = 0; step < c->steps; step++) {
        int y = step / steps_a_row, first = step % steps_a_row * pixels;
        c->offset[step] = y * row + first;
        for (int block = 0; block < blocks; block++)
            for (int k = 0; k < 32; k++)
                for (int n = 0; n < 16; n++) {
                    int x = first + k / c->entering, channel = k % c->entering;
                    const float *of = weight + ((block * 16 + n) * (long)c->channels + channel) * 9 + y * 3 + x;
                    tiles[((step * blocks + block) * 16 + k / 2) * 32 + n * 2 + k % 2] =
                        x < 3 && channel < c->channels ? half(*of) : 0;
                }
    }
}

static inline __attribute__((always_inline)) void
convolve_tiles(const Convolution *c, int blocks, enum after after, const uint16_t *in, Plane plane,
               const __mmask16 *inside, float *residual, void *out) {
    const int row = plane.width + 2, stride = 2 * c->entering, together = blocks == 2 ? 32 : 64;
    const uint16_t *tiles = c->weight;
    float result[4][16][16] __attribute__((aligned(64)));
    for (long p = 0; p < plane.positions; p += together) {
        _tile_loadd(0, c->bias_tile[0], 64);
        _tile_loadd(1, c->bias_tile[blocks - 1], 64);
        _tile_loadd(2, c->bias_tile[0], 64);
        _tile_loadd(3, c->bias_tile[blocks - 1], 64);
        for (int step = 0; step < c->steps; step++) {
            const uint16_t *a = in + (p + c->offset[step]) * c->entering, *b = tiles + (long)step * blocks * 512;
            _tile_loadd(4, a, stride);
            _tile_loadd(5, a + 16 * c->entering, stride);
            _tile_loadd(6, b, 64);
            if (blocks == 2) {
                _tile_loadd(7, b + 512, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            } else {
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, a + 32 * c->entering, stride);
                _tile_dpbf16ps(1, 5, 6);
                _tile_loadd(4, a + 48 * c->entering, stride);
                _tile_dpbf16ps(2, 7, 6);
                _tile_dpbf16ps(3, 4, 6);
            }
        }
        _tile_stored(0, result[0], 64);
        _tile_stored(1, result[1], 64);
        _tile_stored(2, result[2], 64);
        _tile_stored(3, result[3], 64);
        for (int i = 0; i < 4; i++)
            finish(TILES, after, result[i][0], 16, p + (blocks == 2 ? i / 2 : i) * 16, inside, 16 * blocks,
                   blocks == 2 ? i % 2 * 16 : 0, row, residual, NULL, out);
    }
}

static void configure_tiles(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } __attribute__((packed)) tiles = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) tiles.bytes[tile] = 64, tiles.rows[tile] = 16;
    _tile_loadconfig(&tiles);
}

static void release_tiles(void) { _tile_release(); }
#else
static void pack_tiles(Convolution *c, const float *weight, int row) { (void)c, (void)weight, (void)row; }
#define convolve_tiles(...) (void)0
static void configure_tiles(void) {}
static void release_tiles(void) {}
#endif

/* One convolution of the plane; what its result is for is known when this is compiled. */
static void convolve(enum arithmetic arithmetic, const Convolution *c, enum after after, const void *in, Plane plane,
                     const __mmask16 *inside, float *residual, void *out) {
#define OF(BLOCKS, AFTER)                                                                                             \
    (arithmetic == TILES   ? convolve_tiles(c, BLOCKS, AFTER, in, plane, inside, residual, out)                    \
     : arithmetic == PAIRS ? convolve_taps(PAIRS, c, BLOCKS, AFTER, in, plane, inside, residual, NULL, out)              \
                              : convolve_taps(FP32, c, BLOCKS, AFTER, in, plane, inside, residual, NULL, out))
    if (c->leaving == 16)
        after == RAW ? OF(1, RAW) : after == OPEN ? OF(1, OPEN) : after == ADD ? OF(1, ADD) : OF(1, ADD_LAST);
    else
        after == RAW ? OF(2, RAW) : after == OPEN ? OF(2, OPEN) : after == ADD ? OF(2, ADD) : OF(2, ADD_LAST);
#undef OF
}
