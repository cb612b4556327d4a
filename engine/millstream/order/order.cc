#include "millstream/order/order.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/order/draw.h"

namespace millstream {

Order::Order(std::int64_t length, std::int64_t samples, std::string_view what)
    : length_(length), samples_(samples) {
  if (length <= 0 || length > kMaxSamples) {
    throw ArgumentError(
        text(what, " needs between 1 and 2^62 positions, not ", length));
  }
}

void Sequential::run(Seed, std::uint32_t, std::int64_t first,
                     std::span<std::int64_t> out) const {
  std::iota(out.begin(), out.end(), first);
}

void Sequential::add_to(Digest& digest) const {
  digest.add("sequential").add(samples_);
}

void Shuffle::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                  std::span<std::int64_t> out) const {
  Permutation(grid_, seed, epoch, Purpose::kShuffle).run(first, out);
}

void Shuffle::add_to(Digest& digest) const { digest.add("shuffle").add(samples_); }

void Replacement::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                      std::span<std::int64_t> out) const {
  for (std::int64_t& index : out) {
    const auto words = draw(seed, epoch, first++, Purpose::kReplacement);
    index = below(samples_, words[0], words[1]);
  }
}

void Replacement::add_to(Digest& digest) const {
  digest.add("replacement").add(samples_).add(length_);
}

Weighted::Weighted(std::span<const double> weights, std::int64_t length)
    : Order(length, static_cast<std::int64_t>(weights.size()), "a weighted order") {
  if (weights.empty() || weights.size() >= (std::size_t{1} << 31)) {
    throw ArgumentError(text("a weighted order needs between 1 and 2^31 weights, not ",
                             weights.size()));
  }
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw ArgumentError(text("weight ", i, " is ", weights[i],
                               "; weights are finite and not negative"));
    }
    total += weights[i];
  }
  if (!(total > 0) || !std::isfinite(total)) {
    throw ArgumentError(
        text("the weights add up to ", total, "; a positive, finite sum is needed"));
  }

  const auto count = static_cast<double>(weights.size());
  std::vector<double> share(weights.size());
  std::vector<std::uint32_t> poor;
  std::vector<std::uint32_t> rich;
  std::uint32_t heaviest = 0;
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    share[i] = weights[i] / total * count;  // count / total may overflow
    (share[i] < 1 ? poor : rich).push_back(i);
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  columns_.resize(weights.size());
  while (!poor.empty() && !rich.empty()) {
    const std::uint32_t small = poor.back();
    const std::uint32_t large = rich.back();
    poor.pop_back();
    columns_[small] = {static_cast<std::uint32_t>(share[small] * 0x1p32), large};
    share[large] -= 1 - share[small];
    if (share[large] < 1) {
      rich.pop_back();
      poor.push_back(large);
    }
  }
  for (const std::uint32_t i : rich) columns_[i] = {0, i};
  // Rounding alone leaves these: each is a whole column, unless its weight is none.
  for (const std::uint32_t i : poor) columns_[i] = {0, weights[i] > 0 ? i : heaviest};
}

void Weighted::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                   std::span<std::int64_t> out) const {
  for (std::int64_t& index : out) {
    const auto words = draw(seed, epoch, first++, Purpose::kWeighted);
    const std::int64_t chosen = below(samples_, words[0], words[1]);
    const Column& column = columns_[static_cast<std::size_t>(chosen)];
    index = words[2] < column.threshold ? chosen : column.other;
  }
}

void Weighted::add_to(Digest& digest) const {
  digest.add("weighted").add(length_).add(samples_);
  for (const Column& column : columns_) {
    digest.add((std::uint64_t{column.threshold} << 32) | column.other);
  }
}

Listed::Listed(std::shared_ptr<const Order> inner, std::vector<std::int64_t> list,
               std::int64_t n)
    : Order(inner->length(), n, "a list"),
      inner_(std::move(inner)),
      list_(std::move(list)) {
  const auto entries = static_cast<std::int64_t>(list_.size());
  if (entries == 0 || entries % inner_->samples() != 0) {
    throw ArgumentError(text("a list of ", entries, " entries is not whole epochs of ",
                             inner_->samples()));
  }
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (list_[i] < 0 || list_[i] >= n) {
      throw ArgumentError(text("entry ", i, " of the listed order is ", list_[i],
                               ", which is not a sample in [0, ", n, ")"));
    }
  }
}

void Listed::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                 std::span<std::int64_t> out) const {
  inner_->run(seed, epoch, first, out);
  const auto period = static_cast<std::size_t>(inner_->samples());
  const auto* list = list_.data() + epoch % (list_.size() / period) * period;
  for (std::int64_t& index : out) index = list[index];
}

void Listed::add_to(Digest& digest) const {
  digest.add("listed").add(samples_).add(static_cast<std::uint64_t>(list_.size()));
  for (const std::int64_t index : list_) digest.add(index);
  inner_->add_to(digest);
}

Parted::Parted(std::shared_ptr<const Order> inner, const SplitPart& part)
    : Order(inner->length(), part.n, "a part"),
      inner_(std::move(inner)),
      part_(part),
      places_(Grid(part.n), part.seed, 0, Purpose::kSplit) {
  const bool fits = part.first >= 0 && part.length > 0 && part.gap >= 0 &&
                    part.gap <= part.n && part.length <= part.n - part.gap &&
                    part.first <= part.n - part.gap - part.length;
  if (inner_->samples() != part.length) {
    throw ArgumentError(text("a part of ", part.length,
                             " samples is visited by an order of ", inner_->samples()));
  }
  if (!fits) {
    throw ArgumentError(text("a part of ", part.length, " samples from ", part.first,
                             " on does not fit ", part.n, " samples"));
  }
}

void Parted::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                 std::span<std::int64_t> out) const {
  inner_->run(seed, epoch, first, out);
  for (std::int64_t& index : out) {
    index += part_.first;
    if (index >= part_.gap_at) index += part_.gap;
    if (part_.shuffled) index = places_(index);
  }
}

void Parted::add_to(Digest& digest) const {
  digest.add("part").add(part_.n).add(part_.first).add(part_.length);
  digest.add(part_.gap_at).add(part_.gap).add(std::int64_t{part_.shuffled});
  digest.add((std::uint64_t{part_.seed.high} << 32) | part_.seed.low);
  inner_->add_to(digest);
}

}  // namespace millstream
