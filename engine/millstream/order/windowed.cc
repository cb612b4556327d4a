#include "millstream/order/windowed.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "millstream/core/error.h"
#include "millstream/order/draw.h"

namespace millstream {
namespace {

// A counter that the permutation of the blocks never uses: its counters have a high
// word of zero.
constexpr std::int64_t kShortSlot = std::int64_t{1} << 32;

// If a window has at most this many blocks, they are looked up once instead of once per
// sample.
constexpr std::int64_t kListed = 64;

std::int64_t checked(std::int64_t value, std::string_view what) {
  if (value < 1) throw ArgumentError(text(what, " must be at least 1, not ", value));
  return value;
}

}  // namespace

WindowedShuffle::WindowedShuffle(std::int64_t n, std::int64_t block_size,
                                 std::int64_t window)
    : Order(Grid(n).n, n, "an order"),
      block_(std::min(checked(block_size, "block_size"), n)),
      full_(n / block_),
      short_(n % block_),
      missing_(short_ == 0 ? 0 : block_ - short_),
      slots_(full_ + (short_ == 0 ? 0 : 1)),
      window_(std::min(checked(window, "window"), slots_)),
      last_((slots_ - 1) / window_),
      blocks_(full_),
      samples_{Grid(n), Grid(n), Grid(n), Grid(n)} {
  const std::int64_t whole = window_ * block_;
  const std::int64_t rest = (slots_ - last_ * window_) * block_;
  // With a single window, two of these grids are unused, and their size could exceed
  // the limit of an order.
  samples_ = {Grid(std::min(whole, n)), Grid(whole - missing_), Grid(std::min(rest, n)),
              Grid(rest - missing_)};
}

void WindowedShuffle::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                          std::span<std::int64_t> out) const {
  const Permutation blocks(blocks_, seed, epoch, Purpose::kBlocks);
  std::int64_t short_slot = slots_;  // past the end if no block is short
  if (short_ != 0) {
    const auto words = draw(seed, epoch, kShortSlot, Purpose::kBlocks);
    short_slot = below(slots_, words[0], words[1]);
  }
  const std::int64_t whole = window_ * block_;
  const std::int64_t short_window = short_slot / window_;
  // From this position on, windows begin earlier by the length that the short block
  // lacks.
  const std::int64_t shifted =
      short_ == 0 ? length_
                  : short_window * whole + samples_of(short_window == last_, true).n;

  while (!out.empty()) {
    const std::int64_t window = (first + (first < shifted ? 0 : missing_)) / whole;
    const std::int64_t begin = window * whole - (window > short_window ? missing_ : 0);
    const Grid& grid = samples_of(window == last_, window == short_window);
    const auto key = draw(seed, epoch, window, Purpose::kWindow);
    const Permutation samples(grid, {key[0], key[1]}, 0, Purpose::kWindow);
    const auto count = static_cast<std::size_t>(
        std::min(begin + grid.n - first, static_cast<std::int64_t>(out.size())));
    samples.run(first - begin, out.first(count));

    const std::int64_t first_slot = window * window_;
    const std::int64_t after_short =
        window == short_window ? (short_slot - first_slot) * block_ + short_ : grid.n;
    const auto block_in = [&](std::int64_t slot) {
      if (slot == short_slot) return full_;
      return blocks(slot - (slot > short_slot ? 1 : 0));
    };
    std::array<std::int64_t, kListed> list;
    const std::int64_t slots = std::min(window_, slots_ - first_slot);
    const bool listed = slots <= kListed && slots < static_cast<std::int64_t>(count);
    if (listed) {
      for (std::int64_t i = 0; i < slots; ++i) {
        list[static_cast<std::size_t>(i)] = block_in(first_slot + i);
      }
    }
    for (std::int64_t& index : out.first(count)) {
      const std::int64_t at = index + (index < after_short ? 0 : missing_);
      const std::int64_t slot = at / block_;
      const std::int64_t block =
          listed ? list[static_cast<std::size_t>(slot)] : block_in(first_slot + slot);
      index = block * block_ + at % block_;
    }
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void WindowedShuffle::add_to(Digest& digest) const {
  digest.add("windowed").add(length_).add(block_).add(window_);
}

}  // namespace millstream
